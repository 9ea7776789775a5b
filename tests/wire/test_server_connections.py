"""A server on a TCP socket with test handlers: order of responses, back-pressure, limits and malformed requests."""

import asyncio
import gc
import socket
import struct
import tracemalloc
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.config.addresses import parse_listeners
from odradek.broker.network import deadlines
from odradek.broker.network.connection import WRITE_BUFFER_HIGH_BYTES
from odradek.broker.network.listeners import CannotListenError
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.primitives import unsigned_varint
from tests.support.heartbeat_server import Server, heartbeat, number_of, numbered_response, serving, settle, until
from tests.support.raw_client import ConnectionLost, encode_request


class ManualHandler:
    """A handler whose responses are sent by the test; a request with generation -1 gets its response immediately."""

    def __init__(self) -> None:
        self.pending: dict[int, asyncio.Future[HeartbeatResponse]] = {}
        self.seen: list[int] = []

    def __call__(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        number = request.generation_id
        self.seen.append(number)
        if number < 0:
            return numbered_response(number)
        self.pending[number] = asyncio.get_running_loop().create_future()
        return self.pending[number]

    def respond(self, number: int) -> None:
        self.pending[number].set_result(numbered_response(number))

    async def until_seen(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count)


async def test_long_client_id_is_shortened_where_it_is_kept() -> None:
    """A client id of 32 KiB would stay with each idle connection, and with the metrics of clients."""
    client_ids: list[tuple[str | None, str | None]] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        client_ids.append((context.client_id, context.session.client_id))
        return numbered_response(0)

    async with serving(handle) as server:
        for client_id in ("short", "x" * 32_000):
            reader, writer = await server.stream()
            writer.write(encode_request(heartbeat("g"), 4, 1, client_id))
            await reader.readexactly(4)
            writer.close()
    assert client_ids == [("short", "short"), ("x" * 255, "x" * 255)]


async def test_responses_are_sent_in_the_order_of_requests() -> None:
    handler = ManualHandler()
    async with serving(handler) as server:
        client = await server.connect()
        responses = [client.send(heartbeat("g", number), 4) for number in (0, 1, -1, 2)]
        await handler.until_seen(4)
        for number in (2, 1):
            handler.respond(number)
        await settle()
        assert not any(response.done() for response in responses)
        handler.respond(0)
        received: list[Any] = [await response for response in responses]
        assert [number_of(response) for response in received] == [0, 1, -1, 2]


async def test_waiting_stage_one_delays_the_following_requests() -> None:
    handler = ManualHandler()
    second: asyncio.Future[HeartbeatResponse]

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        result = handler(context, request)
        return Ordered(result) if request.group_id == "ordered" else result

    async with serving(handle) as server:
        client = await server.connect()
        first = client.send(heartbeat("ordered", 1), 4)
        behind = client.send(heartbeat("plain", -1), 4)
        await handler.until_seen(1)
        await settle()
        assert handler.seen == [1]
        second = asyncio.get_running_loop().create_future()
        handler.pending[1].set_result(second)  # type: ignore[arg-type]  # stage one returns a stage two
        await handler.until_seen(2)
        assert not first.done()
        second.set_result(numbered_response(7))
        received: list[Any] = [await first, await behind]
        assert [number_of(response) for response in received] == [7, -1]


async def test_request_without_a_response_does_not_delay_following_responses() -> None:
    async with serving(lambda _, request: None if request.group_id == "silent" else numbered_response(1)) as server:
        reader, writer = await server.stream()
        writer.write(encode_request(heartbeat("silent"), 4, 1, "c") + encode_request(heartbeat("loud"), 4, 2, "c"))
        size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
        assert (size, correlation_id) == (12, 2)
        writer.close()


async def test_exceptions_of_concurrent_coroutines_become_error_responses() -> None:
    async def fail(request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        if request.group_id == "refused":
            raise Refusal(ErrorCode.NOT_COORDINATOR)
        raise ZeroDivisionError

    async with serving(lambda _, request: fail(request)) as server:
        client = await server.connect()
        refused, broken = client.send(heartbeat("refused"), 4), client.send(heartbeat("broken"), 4)
        received: list[Any] = [await refused, await broken]
        assert [response.error_code for response in received] == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
        assert [type(exception) for exception in server.unexpected] == [ZeroDivisionError]


async def test_connection_at_max_in_flight_requests_is_not_read() -> None:
    handler = ManualHandler()
    async with serving(handler, "odradek.max.in.flight.requests=3") as server:
        client = await server.connect()
        responses = [client.send(heartbeat("g", number), 4) for number in range(9)]
        await handler.until_seen(3)
        await settle()
        assert handler.seen == [0, 1, 2]
        for number in range(9):
            await handler.until_seen(number + 1)
            handler.respond(number)
        received: list[Any] = [await response for response in responses]
        assert [number_of(response) for response in received] == list(range(9))


async def test_exhausted_byte_budget_stops_all_connections_until_requests_complete_in_order() -> None:
    handler = ManualHandler()
    limits = ("queued.max.request.bytes=80000", "socket.request.max.bytes=20000")
    async with serving(handler, *limits) as server:
        clients = [await server.connect() for _ in range(4)]
        responses = []
        for number, client in enumerate(clients):
            responses.append(client.send(heartbeat("g" * 16000, number), 4))
            await settle()
        assert handler.seen == [0, 1, 2], (
            "two requests fill half of the budget, and one favored connection may exceed it"
        )
        for number in range(4):
            await handler.until_seen(number + 1)
            handler.respond(number)
            await responses[number]
        assert handler.seen == [0, 1, 2, 3]
        assert server.shared.budget.used_bytes == 0


def padded_heartbeat(size: int) -> bytes:
    """Return a request with an unknown tagged field of `size` bytes."""
    frame = encode_request(heartbeat("g", 1), 4, 1, "c")[struct.calcsize(">i") : -1]
    frame += b"\x01\x09" + unsigned_varint(size) + bytes(size)
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("received", [40_000, 70_000, 300_000])
async def test_buffers_of_half_requests_are_charged_until_the_request_is_complete(received: int) -> None:
    async with serving(lambda *_: numbered_response(1)) as server:
        budget, whole = server.shared.budget, padded_heartbeat(900_000)
        streams = [await server.stream() for _ in range(5)]
        for _, writer in streams:
            writer.write(whole[:received])
        await until(lambda: len(server.acceptor.connections) == len(streams))
        cores = [connection._core for connection in server.acceptor.connections]
        unread = len(streams) * (received - struct.calcsize(">i"))
        await until(lambda: sum(core.buffered for core in cores) >= unread)
        assert sum(core.buffered for core in cores) == unread
        assert sum(core.own_buffer_bytes for core in cores) <= budget.used_bytes < 2 * 5 * 900_000
        for reader, writer in streams[1:]:
            writer.write(whole[received:])
            await reader.readexactly(16)
        streams[0][1].close()
        await until(lambda: budget.used_bytes == 0)
        for _, writer in streams:
            writer.close()


async def test_incomplete_requests_do_not_block_a_full_byte_budget() -> None:
    limits = ("queued.max.request.bytes=20000", "socket.request.max.bytes=20000")
    async with serving(lambda *_: numbered_response(1), *limits) as server:
        whole = encode_request(heartbeat("g" * 16000), 4, 1, "c")
        streams = [await server.stream() for _ in range(3)]
        for _, writer in streams:
            writer.write(whole[:12000])
            await settle()
        for _, writer in streams:
            writer.write(whole[12000:])
        responses = []
        for reader, writer in streams:
            async with asyncio.timeout(5):
                responses.append(struct.unpack(">iixihx", await reader.readexactly(16)))
            writer.close()
        assert responses == [(12, 1, numbered_response(1).throttle_time_ms, 0)] * 3


async def test_incomplete_requests_do_not_exceed_the_byte_budget() -> None:
    limits = ("queued.max.request.bytes=40000000", "socket.request.max.bytes=6000000")
    async with serving(lambda *_: numbered_response(1), *limits) as server:
        half = padded_heartbeat(5_000_000)[:4_900_000]
        streams = [await server.stream() for _ in range(12)]
        budget = server.shared.budget
        most = 0
        for _, writer in streams:
            writer.write(half)
        for _ in range(50):
            await settle()
            most = max(most, budget.used_bytes)
        assert budget.read_limit_bytes <= most <= budget.limit_bytes
        for _, writer in streams:
            writer.close()


async def test_incomplete_requests_that_fill_the_budget_time_out_while_complete_ones_wait() -> None:
    handler = ManualHandler()
    limits = ("queued.max.request.bytes=20000", "socket.request.max.bytes=20000", "odradek.frame.deadline.ms=100")
    async with serving(handler, *limits) as server:
        parked = (await server.connect()).send(heartbeat("g", 0), 4)
        await handler.until_seen(1)
        half = encode_request(heartbeat("g" * 16000, 9), 4, 1, "c")[:12000]
        streams = [await server.stream() for _ in range(4)]
        for _, writer in streams:
            writer.write(half)
        await settle()
        bystander = (await server.connect()).send(heartbeat("i", -1), 4)
        for reader, writer in streams:
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
        async with asyncio.timeout(5):
            await bystander
        assert handler.seen == [0, -1]
        handler.respond(0)
        await parked


async def test_connection_of_a_client_that_reads_no_responses_is_not_read() -> None:
    served = 0

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal served
        served += 1
        return HeartbeatResponse(unknown_tagged_fields=((0, bytes(1_000_000)),))

    async with serving(handle) as server:
        reader, writer = await server.stream()
        count = 40
        writer.write(encode_request(heartbeat("g"), 4, 1, "c") * count)
        await settle()
        assert served < count
        for _ in range(count):
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            await reader.readexactly(size)
        assert served == count
        writer.close()


async def test_clients_that_receive_nothing_are_disconnected_soon_while_their_responses_fill_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unsent responses of each client are below WRITE_BUFFER_HIGH_BYTES, so the broker continues to read it."""
    monkeypatch.setattr(deadlines, "UNSENT_SECONDS_MAX", 1.0)
    limits = [f"{name}={WRITE_BUFFER_HIGH_BYTES}" for name in ("queued.max.request.bytes", "socket.request.max.bytes")]
    async with serving(large_response, *limits) as server:
        budget = server.shared.budget
        with ExitStack() as clients:
            count = 0
            while budget.unsent_bytes <= WRITE_BUFFER_HIGH_BYTES and server.shared.limits.total == count:
                await request_until_unsent(server, clients.enter_context(await connected(server)))
                count += 1
            await until(lambda: server.shared.limits.total < count)


async def test_bytes_of_responses_are_released_when_the_client_has_received_them_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client sends no further request, and the transport does not report when its buffer is empty."""
    monkeypatch.setattr(deadlines, "UNSENT_SECONDS_MAX", 0.1)
    async with serving(large_response) as server:
        with await connected(server) as client:
            await request_until_unsent(server, client)
            client.setblocking(False)
            async with asyncio.timeout(5):
                while server.shared.budget.unsent_bytes:
                    with suppress(BlockingIOError):
                        client.recv(WRITE_BUFFER_HIGH_BYTES)
                    await asyncio.sleep(0.001)
            assert server.shared.limits.total == 1


def large_response(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Respond with 0.3 MiB."""
    return HeartbeatResponse(unknown_tagged_fields=((0, bytes(WRITE_BUFFER_HIGH_BYTES * 3 // 10)),))


async def connected(server: Server) -> socket.socket:
    """Connect a client. It receives only what the test reads from its socket."""
    latest = max(server.shared.connections, default=0)
    with ExitStack() as on_failure:
        client = on_failure.enter_context(socket.create_connection(("127.0.0.1", server.acceptor.listeners[0].port)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each request arrives alone
        # The broker may disconnect an earlier client meanwhile, so the number of connections is no evidence.
        await until(lambda: max(server.shared.connections, default=0) > latest)
        on_failure.pop_all()
    return client


async def request_until_unsent(server: Server, client: socket.socket) -> None:
    """Send one request at a time until a part of a response stays unsent. The kernel takes the first responses."""
    before = server.shared.budget.unsent_bytes
    while server.shared.budget.unsent_bytes <= before:
        client.sendall(encode_request(heartbeat("g"), 4, 1, "c"))
        await settle()


async def test_parked_request_is_woken_by_the_next_request_and_by_disconnection() -> None:
    woken: list[str] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        if request.group_id != "park":
            return numbered_response(2)
        future = asyncio.get_running_loop().create_future()

        def wake() -> None:
            woken.append("woken")
            future.set_result(numbered_response(1))

        context.session.on_next_request(wake)
        return future

    async with serving(handle) as server:
        client = await server.connect()
        parked = client.send(heartbeat("park"), 4)
        await settle()
        assert not parked.done()
        following = client.send(heartbeat("go"), 4)
        received: list[Any] = [await parked, await following]
        assert [number_of(response) for response in received] == [1, 2]
        client.send(heartbeat("park"), 4)
        await settle()
        client.close()
        await until(lambda: len(woken) == 2)


MALFORMED = {
    "negative size": struct.pack(">i", -1),
    "size beyond the limit": struct.pack(">i", 200_000_000),
    "size below a header": struct.pack(">i", 3) + b"abc",
    "client id runs past the end": struct.pack(">ihhih", 10, 12, 4, 1, 500),
    "client id is not text": struct.pack(">ihhih", 14, 12, 4, 1, 2) + b"\xff\xfe\x00\x00",
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "API that is not served": encode_request(MetadataRequest(), 12, 1, "c"),
    "unsupported version": struct.pack(">ihhih", 11, 12, 99, 1, -1) + b"\x00",
    "negative version": struct.pack(">ihhih", 10, 12, -1, 1, -1),
    "body ends early": struct.pack(">ihhih", 12, 12, 4, 1, -1) + b"\x00\x05",
    "tags that never end": struct.pack(">ihhih", 15, 12, 4, 1, -1) + b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_request_closes_its_connection_and_is_logged_once(name: str) -> None:
    async with serving(lambda *_: numbered_response(1), "socket.request.max.bytes=1000000") as server:
        bystander = await server.connect()
        await bystander.call(heartbeat("before"), 4)
        with capture_logs() as lines:
            reader, writer = await server.stream()
            writer.write(encode_request(heartbeat("fine"), 4, 1, "c") + MALFORMED[name])
            async with asyncio.timeout(5):
                assert len(await reader.read()) == 16, (
                    "the valid request gets its response, then the connection is closed"
                )
            writer.close()
        assert [line["event"] for line in lines] == ["connection closed: malformed request"]
        await bystander.call(heartbeat("after"), 4)
        assert server.unexpected == []


async def test_bytes_after_a_request_are_ignored_as_in_kafka() -> None:
    """librdkafka 2.16 sends such a Metadata request for all topics, and Kafka accepts it."""
    seen: list[str] = []

    def handle(_: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append(request.group_id)
        return numbered_response(1)

    async with serving(handle) as server:
        reader, writer = await server.stream()
        request = encode_request(heartbeat("g"), 4, 1, "c")[4:] + b"\x01\x00\x00"
        writer.write(struct.pack(">i", len(request)) + request + encode_request(heartbeat("next"), 4, 2, "c"))
        async with asyncio.timeout(5):
            assert len(await reader.readexactly(32)) == 32
        writer.close()
        assert (seen, server.unexpected) == (["g", "next"], [])


async def test_api_versions_with_unsupported_version_gets_a_version_0_response() -> None:
    async with serving(lambda *_: numbered_response(1)) as server:
        reader, writer = await server.stream()
        writer.write(struct.pack(">ihhih", 14, 18, 99, 5, -1) + b"\x00\xde\xad\xbe")
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        assert (await reader.readexactly(size)).hex() == "00000005" + "0023" + "00000001" + "001200000005"
        writer.close()
        client = await server.connect()
        response: Any = await client.call(ApiVersionsRequest(), 2)
        assert [row.api_key for row in response.api_keys] == [12, 18]


async def test_incomplete_request_closes_its_connection_at_the_frame_deadline() -> None:
    handler = ManualHandler()
    async with serving(handler, "odradek.frame.deadline.ms=80") as server:
        client = await server.connect()
        slow = client.send(heartbeat("g", 0), 4)
        reader, writer = await server.stream()
        started = asyncio.get_running_loop().time()
        writer.write(encode_request(heartbeat("g", 1), 4, 1, "c")[:-1])
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - started >= 0.08
        writer.close()
        assert handler.seen == [0]
        handler.respond(0)
        await slow


async def test_buffer_of_an_incomplete_request_is_freed_with_its_connection() -> None:
    """The buffer must not wait for a garbage collection: a client that reconnects repeatedly would exhaust memory."""
    half = struct.pack(">i", 90_000_000) + bytes(300_000)
    async with serving(lambda *_: numbered_response(1)) as server:
        await (await server.connect()).call(heartbeat("warm"), 4)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(20):
                _, writer = await server.stream()
                writer.write(half)
                await writer.drain()
                await settle()
                writer.close()
                await writer.wait_closed()
            await settle()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 20 * 30_000


async def test_idle_connection_is_closed_unless_it_has_a_pending_request_or_is_from_a_broker() -> None:
    handler = ManualHandler()
    async with serving(handler, "connections.max.idle.ms=80", "odradek.frame.deadline.ms=50") as server:
        busy, idle, peer = [await server.connect(name) for name in ("raw", "raw", "broker-2-raft")]
        assert await peer.call(heartbeat("g", -1), 4) == await idle.call(heartbeat("g", -1), 4)
        waiting = busy.send(heartbeat("g", 0), 4)
        async with asyncio.timeout(5):
            while idle.is_open:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.15)
        assert (busy.is_open, waiting.done(), peer.is_open) == (True, False, True)
        handler.respond(0)
        assert await waiting == numbered_response(0)


@pytest.mark.parametrize("limit", ["max.connections=2", "max.connections.per.ip=2"])
async def test_connections_above_the_limit_are_closed_until_another_one_ends(limit: str) -> None:
    async with serving(lambda *_: numbered_response(1), limit) as server:
        first, second = await server.connect(), await server.connect()
        await first.call(heartbeat("g"), 4)
        await second.call(heartbeat("g"), 4)
        with capture_logs() as lines:
            for _ in range(2):
                third = await server.connect()
                with pytest.raises((ConnectionLost, OSError)):
                    await third.call(heartbeat("g"), 4)
        assert [line["limit"] for line in lines] == [limit.split("=", maxsplit=1)[0]], (
            "one log entry for several refused connections"
        )
        first.close()
        await until(lambda: server.shared.limits.total == 1)
        fourth = await server.connect()
        await fourth.call(heartbeat("g"), 4)


async def test_connections_are_accepted_at_most_at_the_creation_rate() -> None:
    async with serving(lambda *_: numbered_response(1), "max.connection.creation.rate=10") as server:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for _ in range(12):
            await (await server.connect()).call(heartbeat("g"), 4)
        assert 0.15 <= loop.time() - started < 2


async def test_connection_opened_before_the_node_serves_gets_its_response_afterwards() -> None:
    server = Server(lambda *_: numbered_response(1))
    await server.acceptor.bind(parse_listeners(server.config), server.shared)
    client = await server.connect()
    early = client.send(heartbeat("g"), 4)
    await settle()
    assert not early.done()
    server.serve()
    await early
    await server.stop()


async def test_port_in_use_raises_an_error_that_names_the_address() -> None:
    async with serving(lambda *_: numbered_response(1)) as server:
        port = server.acceptor.listeners[0].port
        other = Server(lambda *_: numbered_response(1), f"listeners=PLAINTEXT://127.0.0.1:{port}")
        with pytest.raises(CannotListenError, match=rf"cannot listen on 127\.0\.0\.1:{port} \(PLAINTEXT\): a.*in use"):
            await other.start()
        await other.stop()
