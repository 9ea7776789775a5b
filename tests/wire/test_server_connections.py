"""A live server on a real socket, with handlers of the test's own: order, back-pressure, limits and hostile bytes."""

import asyncio
import gc
import struct
import tracemalloc
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.config.addresses import parse_listeners
from odradek.broker.network.listeners import CannotListenError
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.heartbeat_server import Server, ask, serving, settle, tell, told, until
from tests.support.raw_client import ConnectionLost, encode_request


class Gates:
    """A handler whose answers wait for the test; generation -1 is answered at once."""

    def __init__(self) -> None:
        self.open: dict[int, asyncio.Future[HeartbeatResponse]] = {}
        self.seen: list[int] = []

    def __call__(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        number = request.generation_id
        self.seen.append(number)
        if number < 0:
            return tell(number)
        self.open[number] = asyncio.get_running_loop().create_future()
        return self.open[number]

    def answer(self, number: int) -> None:
        self.open[number].set_result(tell(number))

    async def until_seen(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count)


async def test_answers_leave_in_the_order_of_requests() -> None:
    gates = Gates()
    async with serving(gates) as server:
        client = await server.connect()
        answers = [client.send(ask("g", number), 4) for number in (0, 1, -1, 2)]
        await gates.until_seen(4)
        for number in (2, 1):
            gates.answer(number)
        await settle()
        assert not any(answer.done() for answer in answers)
        gates.answer(0)
        got: list[Any] = [await answer for answer in answers]
        assert [told(answer) for answer in got] == [0, 1, -1, 2]


async def test_a_stage_one_that_waits_holds_back_the_requests_behind_it() -> None:
    gates = Gates()
    second: asyncio.Future[HeartbeatResponse]

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        result = gates(context, request)
        return Ordered(result) if request.group_id == "ordered" else result

    async with serving(handle) as server:
        client = await server.connect()
        first = client.send(ask("ordered", 1), 4)
        behind = client.send(ask("plain", -1), 4)
        await gates.until_seen(1)
        await settle()
        assert gates.seen == [1]
        second = asyncio.get_running_loop().create_future()
        gates.open[1].set_result(second)  # type: ignore[arg-type]  # stage one has come to a stage two
        await gates.until_seen(2)
        assert not first.done()
        second.set_result(tell(7))
        got: list[Any] = [await first, await behind]
        assert [told(answer) for answer in got] == [7, -1]


async def test_a_handler_that_answers_nothing_holds_nothing_back() -> None:
    async with serving(lambda _, request: None if request.group_id == "silent" else tell(1)) as server:
        reader, writer = await server.stream()
        writer.write(encode_request(ask("silent"), 4, 1, "c") + encode_request(ask("loud"), 4, 2, "c"))
        size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
        assert (size, correlation_id) == (12, 2)
        writer.close()


async def test_coroutines_overlap_and_what_they_raise_becomes_an_answer() -> None:
    async def fail(request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        if request.group_id == "refused":
            raise Refusal(ErrorCode.NOT_COORDINATOR)
        raise ZeroDivisionError

    async with serving(lambda _, request: fail(request)) as server:
        client = await server.connect()
        refused, broken = client.send(ask("refused"), 4), client.send(ask("broken"), 4)
        got: list[Any] = [await refused, await broken]
        assert [answer.error_code for answer in got] == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert [type(exception) for exception in server.unexpected] == [ZeroDivisionError]


async def test_a_connection_is_not_read_on_with_too_many_requests_in_work() -> None:
    gates = Gates()
    async with serving(gates, "odradek.max.in.flight.requests=3") as server:
        client = await server.connect()
        answers = [client.send(ask("g", number), 4) for number in range(9)]
        await gates.until_seen(3)
        await settle()
        assert gates.seen == [0, 1, 2]
        for number in range(9):
            await gates.until_seen(number + 1)
            gates.answer(number)
        got: list[Any] = [await answer for answer in answers]
        assert [told(answer) for answer in got] == list(range(9))


async def test_the_byte_budget_holds_back_all_connections_and_lets_them_go_on_in_order() -> None:
    gates = Gates()
    limits = ("queued.max.request.bytes=40000", "socket.request.max.bytes=20000")
    async with serving(gates, *limits) as server:
        clients = [await server.connect() for _ in range(4)]
        answers = []
        for number, client in enumerate(clients):
            answers.append(client.send(ask("g" * 16000, number), 4))
            await settle()
        assert gates.seen == [0, 1, 2], "two requests fill the budget, and one connection is favored"
        for number in range(4):
            await gates.until_seen(number + 1)
            gates.answer(number)
            await answers[number]
        assert gates.seen == [0, 1, 2, 3]
        assert server.shared.budget.used_bytes == 0


async def test_half_requests_cannot_block_a_full_budget_for_ever() -> None:
    limits = ("queued.max.request.bytes=20000", "socket.request.max.bytes=20000")
    async with serving(lambda *_: tell(1), *limits) as server:
        whole = encode_request(ask("g" * 16000), 4, 1, "c")
        streams = [await server.stream() for _ in range(3)]
        for _, writer in streams:
            writer.write(whole[:12000])
            await settle()
        for _, writer in streams:
            writer.write(whole[12000:])
        answers = []
        for reader, writer in streams:
            async with asyncio.timeout(5):
                answers.append(struct.unpack(">iixihx", await reader.readexactly(16)))
            writer.close()
        assert answers == [(12, 1, tell(1).throttle_time_ms, 0)] * 3


async def test_half_requests_that_fill_the_budget_are_given_up_even_while_others_wait_for_answers() -> None:
    gates = Gates()
    limits = ("queued.max.request.bytes=20000", "socket.request.max.bytes=20000", "odradek.frame.deadline.ms=100")
    async with serving(gates, *limits) as server:
        parked = (await server.connect()).send(ask("g", 0), 4)
        await gates.until_seen(1)
        half = encode_request(ask("g" * 16000, 9), 4, 1, "c")[:12000]
        streams = [await server.stream() for _ in range(4)]
        for _, writer in streams:
            writer.write(half)
        await settle()
        innocent = (await server.connect()).send(ask("i", -1), 4)
        for reader, writer in streams:
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
        async with asyncio.timeout(5):
            await innocent
        assert gates.seen == [0, -1]
        gates.answer(0)
        await parked


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    served = 0

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal served
        served += 1
        return HeartbeatResponse(unknown_tagged_fields=((0, bytes(1_000_000)),))

    async with serving(handle) as server:
        reader, writer = await server.stream()
        count = 40
        writer.write(encode_request(ask("g"), 4, 1, "c") * count)
        await settle()
        assert served < count
        for _ in range(count):
            size = struct.unpack(">i", await reader.readexactly(4))[0]
            await reader.readexactly(size)
        assert served == count
        writer.close()


async def test_a_waiting_request_is_woken_by_the_next_one_and_by_the_end() -> None:
    woken: list[str] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        if request.group_id != "park":
            return tell(2)
        future = asyncio.get_running_loop().create_future()

        def wake() -> None:
            woken.append("woken")
            future.set_result(tell(1))

        context.session.on_next_request(wake)
        return future

    async with serving(handle) as server:
        client = await server.connect()
        parked = client.send(ask("park"), 4)
        await settle()
        assert not parked.done()
        following = client.send(ask("go"), 4)
        got: list[Any] = [await parked, await following]
        assert [told(answer) for answer in got] == [1, 2]
        client.send(ask("park"), 4)
        await settle()
        client.close()
        await until(lambda: len(woken) == 2)


HOSTILE = {
    "negative size": struct.pack(">i", -1),
    "size beyond the limit": struct.pack(">i", 200_000_000),
    "size below a header": struct.pack(">i", 3) + b"abc",
    "client id runs past the end": struct.pack(">ihhih", 10, 12, 4, 1, 500),
    "client id is not text": struct.pack(">ihhih", 14, 12, 4, 1, 2) + b"\xff\xfe\x00\x00",
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "API that is not served": encode_request(MetadataRequest(), 12, 1, "c"),
    "version from the future": struct.pack(">ihhih", 11, 12, 99, 1, -1) + b"\x00",
    "negative version": struct.pack(">ihhih", 10, 12, -1, 1, -1),
    "body ends early": struct.pack(">ihhih", 12, 12, 4, 1, -1) + b"\x00\x05",
    "tags that never end": struct.pack(">ihhih", 15, 12, 4, 1, -1) + b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_close_their_connection_after_one_line_and_nothing_else(name: str) -> None:
    async with serving(lambda *_: tell(1), "socket.request.max.bytes=1000000") as server:
        innocent = await server.connect()
        await innocent.call(ask("before"), 4)
        with capture_logs() as lines:
            reader, writer = await server.stream()
            writer.write(encode_request(ask("fine"), 4, 1, "c") + HOSTILE[name])
            async with asyncio.timeout(5):
                assert len(await reader.read()) == 16, "what came before is answered, then the connection ends"
            writer.close()
        assert [line["event"] for line in lines] == ["connection closed: malformed request"]
        await innocent.call(ask("after"), 4)
        assert server.unexpected == []


async def test_bytes_behind_a_request_are_passed_over_as_in_kafka() -> None:
    """librdkafka 2.16 sends such a Metadata request for all topics, and Kafka answers it."""
    seen: list[str] = []

    def handle(_: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append(request.group_id)
        return tell(1)

    async with serving(handle) as server:
        reader, writer = await server.stream()
        request = encode_request(ask("g"), 4, 1, "c")[4:] + b"\x01\x00\x00"
        writer.write(struct.pack(">i", len(request)) + request + encode_request(ask("next"), 4, 2, "c"))
        async with asyncio.timeout(5):
            assert len(await reader.readexactly(32)) == 32
        writer.close()
        assert (seen, server.unexpected) == (["g", "next"], [])


async def test_api_versions_from_the_future_is_answered_in_version_0() -> None:
    async with serving(lambda *_: tell(1)) as server:
        reader, writer = await server.stream()
        writer.write(struct.pack(">ihhih", 14, 18, 99, 5, -1) + b"\x00\xde\xad\xbe")
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        assert (await reader.readexactly(size)).hex() == "00000005" + "0023" + "00000001" + "001200000004"
        writer.close()
        client = await server.connect()
        response: Any = await client.call(ApiVersionsRequest(), 2)
        assert [row.api_key for row in response.api_keys] == [12, 18]


async def test_a_half_request_is_given_up_at_its_deadline_and_a_slow_whole_one_is_not() -> None:
    gates = Gates()
    async with serving(gates, "odradek.frame.deadline.ms=80") as server:
        client = await server.connect()
        slow = client.send(ask("g", 0), 4)
        reader, writer = await server.stream()
        started = asyncio.get_running_loop().time()
        writer.write(encode_request(ask("g", 1), 4, 1, "c")[:-1])
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - started >= 0.08
        writer.close()
        assert gates.seen == [0]
        gates.answer(0)
        await slow


async def test_half_requests_are_given_up_with_their_connection() -> None:
    """At once, not at the next garbage collection, which is a rare event: else reconnecting would fill the memory."""
    half = struct.pack(">i", 90_000_000) + bytes(300_000)
    async with serving(lambda *_: tell(1)) as server:
        await (await server.connect()).call(ask("warm"), 4)
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


async def test_a_silent_connection_is_closed_and_one_with_work_or_of_a_broker_is_not() -> None:
    gates = Gates()
    async with serving(gates, "connections.max.idle.ms=80", "odradek.frame.deadline.ms=50") as server:
        busy, idle, peer = [await server.connect(name) for name in ("raw", "raw", "broker-2-raft")]
        assert await peer.call(ask("g", -1), 4) == await idle.call(ask("g", -1), 4)
        waiting = busy.send(ask("g", 0), 4)
        async with asyncio.timeout(5):
            while idle.is_open:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.15)
        assert (busy.is_open, waiting.done(), peer.is_open) == (True, False, True)
        gates.answer(0)
        assert await waiting == tell(0)


@pytest.mark.parametrize("limit", ["max.connections=2", "max.connections.per.ip=2"])
async def test_connections_beyond_the_limit_are_closed_and_places_become_free(limit: str) -> None:
    async with serving(lambda *_: tell(1), limit) as server:
        first, second = await server.connect(), await server.connect()
        await first.call(ask("g"), 4)
        await second.call(ask("g"), 4)
        with capture_logs() as lines:
            for _ in range(2):
                third = await server.connect()
                with pytest.raises((ConnectionLost, OSError)):
                    await third.call(ask("g"), 4)
        assert [line["limit"] for line in lines] == [limit.split("=", maxsplit=1)[0]], (
            "one line however many are refused"
        )
        first.close()
        await until(lambda: server.shared.limits.total == 1)
        fourth = await server.connect()
        await fourth.call(ask("g"), 4)


async def test_connections_are_read_no_faster_than_the_creation_rate() -> None:
    async with serving(lambda *_: tell(1), "max.connection.creation.rate=10") as server:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for _ in range(12):
            await (await server.connect()).call(ask("g"), 4)
        assert 0.15 <= loop.time() - started < 2


async def test_connections_made_before_the_node_serves_wait_and_are_served_first() -> None:
    server = Server(lambda *_: tell(1))
    await server.acceptor.bind(parse_listeners(server.config), server.shared)
    client = await server.connect()
    early = client.send(ask("g"), 4)
    await settle()
    assert not early.done()
    server.serve()
    await early
    await server.stop()


async def test_a_port_in_use_is_one_clear_line() -> None:
    async with serving(lambda *_: tell(1)) as server:
        port = server.acceptor.listeners[0].port
        other = Server(lambda *_: tell(1), f"listeners=PLAINTEXT://127.0.0.1:{port}")
        with pytest.raises(CannotListenError, match=rf"cannot listen on 127\.0\.0\.1:{port} \(PLAINTEXT\): a.*in use"):
            await other.start()
        await other.stop()
