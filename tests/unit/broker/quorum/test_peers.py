"""Peers: responses in order, immediate reports of lost connections, no retries."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.peer_login import by_credential
from odradek.broker.quorum.peers import Channel, Peers
from odradek.protocol.codec import encode_response
from odradek.protocol.connection import parse_request
from odradek.protocol.errors import Unencodable
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.protocol.sasl.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION, Login
from odradek.runtime.clock import NEVER_MS
from odradek.runtime.tasks import Tasks
from tests.support.ports import free_ports

Respond = Callable[[int, asyncio.StreamWriter], None]


def numbered(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    body = b"".join(encode_response(VoteRequest.API_KEY, 2, correlation_id, VoteResponse(correlation_id)))
    writer.write(len(body).to_bytes(4, "big") + body)


class Rig:
    def __init__(self, port: int) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.failures.append((name, error)))
        self.lost: list[tuple[int, bool]] = []
        self.serving: list[asyncio.Task[Any] | None] = []
        self.client_ids: list[str | None] = []
        self.peers = Peers(1, lambda node, _: ("127.0.0.1", port) if node == 2 else None, SystemClock(), self.tasks)
        self.peers.on_lost(lambda node_id, refused: self.lost.append((node_id, refused)))

    def request(
        self, node_id: int = 2, channel: Channel = Channel.RAFT, timeout_ms: int = 10_000
    ) -> "asyncio.Future[Any]":
        return self.peers.request(node_id, channel, VoteRequest(), 2, timeout_ms=timeout_ms)


async def test_missing_descriptors_of_this_node_are_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    rig = Rig(1)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_descriptor)
    with pytest.raises(ConnectionError, match="too many open files"):
        await rig.request()
    assert (rig.lost, rig.failures) == ([], [])
    rig.peers.close()


@asynccontextmanager
async def served(respond: Respond) -> AsyncIterator[Rig]:
    """Run a node 2 that calls `respond` with each correlation id."""
    [port] = free_ports(1)
    rig = Rig(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rig.serving.append(asyncio.current_task())
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = parse_request(await reader.readexactly(size))
                rig.client_ids.append(frame.client_id)
                respond(frame.correlation_id, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield rig
    finally:
        rig.peers.close()
        # Connections are accepted in order: when this one has ended, none that Peers opened is still unaccepted.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        for task in rig.serving:
            assert task is not None
            await task
        await rig.tasks.cancel_all()
        assert not rig.failures


class _Credential:
    """Client of a login with one empty message in each direction."""

    mechanism = "PLAIN"

    def first(self) -> bytes:
        return b""

    def next(self, message: bytes) -> None:
        return None


def expiring(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    """Respond to the two requests of a login, whose session has ended when its response arrives; then to requests."""
    if correlation_id > 1:
        numbered(correlation_id, writer)
        return
    message: Any = SaslHandshakeResponse() if correlation_id == 0 else SaslAuthenticateResponse(session_lifetime_ms=1)
    version = HANDSHAKE_VERSION if correlation_id == 0 else AUTHENTICATE_VERSION
    body = b"".join(encode_response(message.API_KEY, version, correlation_id, message))
    writer.write(len(body).to_bytes(4, "big") + body)


async def test_connection_whose_session_expires_is_replaced_and_completes_its_requests() -> None:
    held: list[Callable[[], None]] = []

    def respond(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id == 3 and not held:
            held.append(lambda: numbered(correlation_id, writer))
        else:
            expiring(correlation_id, writer)

    async with served(respond) as rig:
        rig.peers.login_of = lambda *_: by_credential(Login(_Credential()))
        first, waiting = rig.request(), rig.request()
        assert (await first).error_code == 2
        async with asyncio.timeout(30):
            while not held:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # the session has 1 ms on the clock of the event loop
        assert (await rig.request()).error_code == 2
        assert len(rig.serving) == 2
        held[0]()
        assert (await waiting).error_code == 3
        assert rig.lost == []


async def test_closed_connection_after_the_login_is_logged_once_with_the_mapping_of_principals() -> None:
    def respond(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id > 1:
            writer.close()
        else:
            expiring(correlation_id, writer)

    with structlog.testing.capture_logs() as logs:
        async with served(respond) as rig:
            rig.peers.login_of = lambda *_: by_credential(Login(_Credential()))
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    await rig.request()
    (row,) = [row for row in logs if row["event"] == "authentication to a node failed"]
    assert "add the principal of this node to odradek.node.principals there" in row["reason"]


async def test_responses_match_their_requests_and_each_purpose_has_a_connection() -> None:
    async with served(numbered) as rig:
        assert rig.peers.last_contact_ms(2) == NEVER_MS
        responses = [rig.request() for _ in range(3)] + [rig.request(channel=Channel.MARKERS)]
        assert [(await response).error_code for response in responses] == [0, 1, 2, 0]
        assert len(rig.serving) == 2
        assert sorted(rig.client_ids, key=str) == ["broker-1-markers"] + ["broker-1-raft"] * 3
        assert rig.peers.last_contact_ms(2) > NEVER_MS
        assert rig.peers.last_refusal_ms(2) == NEVER_MS
        assert rig.lost == []


@pytest.mark.parametrize("connected", [False, True])
async def test_request_that_cannot_be_encoded_fails_alone(connected: bool) -> None:
    async with served(numbered) as rig:
        first = [(await rig.request()).error_code] if connected else []
        broken = rig.peers.request(2, Channel.RAFT, VoteRequest(voter_id=2**31), 2, timeout_ms=10_000)
        following = rig.request()
        with pytest.raises(Unencodable, match="voter_id"):
            await broken
        assert (await following).error_code == len(first)


async def test_closed_connection_fails_all_pending_requests_and_the_next_request_reconnects() -> None:
    async with served(lambda number, writer: numbered(number, writer) if number else writer.close()) as rig:
        first, second = rig.request(), rig.request()
        with pytest.raises(ConnectionError, match="node 2 was lost"):
            await first
        with pytest.raises(ConnectionError):
            await second
        assert rig.lost == [(2, False)]
        with pytest.raises(ConnectionError):
            await rig.request()
        assert len(rig.serving) == 2


async def test_refused_connection_unknown_address_and_shutdown_fail_the_request_immediately() -> None:
    [port] = free_ports(1)
    rig = Rig(port)
    with pytest.raises(ConnectionError, match=r"node 2 at 127\.0\.0\.1:"):
        await rig.request()
    assert rig.lost == [(2, True)]
    assert rig.peers.last_refusal_ms(2) > NEVER_MS
    with pytest.raises(ConnectionError, match="no address is known for node 3"):
        await rig.request(3)
    rig.peers.close()
    with pytest.raises(ConnectionError, match="this node is shutting down"):
        await rig.request()
    await rig.tasks.cancel_all()


async def test_timeout_of_a_request_fails_the_requests_after_it() -> None:
    async with served(lambda *_: None) as rig:
        first, second = rig.request(timeout_ms=1), rig.request()
        with pytest.raises(TimeoutError):
            await first
        with pytest.raises(ConnectionError, match="did not respond to an earlier request"):
            await second


async def test_timeout_of_a_cancelled_request_closes_the_connection() -> None:
    """A machine without power closes no connection. The next request must not use the connection to it."""

    def once(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id == 0:
            numbered(correlation_id, writer)

    async with served(once) as rig:
        await rig.request()
        first, second = rig.request(timeout_ms=1), rig.request()
        first.cancel()
        with pytest.raises(ConnectionError):
            await second


async def test_late_response_is_not_matched_with_the_next_request() -> None:
    received: list[tuple[int, asyncio.StreamWriter]] = []

    def delay_second(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        """Respond to the second request together with the third."""
        received.append((correlation_id, writer))
        for request in {1: received, 2: [], 3: received[1:]}[len(received)]:
            numbered(*request)

    async with served(delay_second) as rig:
        await rig.request()
        with pytest.raises(TimeoutError):
            await rig.request(timeout_ms=1)
        assert (await rig.request()).error_code == 0, "the first response of a new connection"
        assert len(rig.serving) == 2


async def test_malformed_response_closes_the_connection() -> None:
    async with served(lambda _, writer: writer.write(b"\x00\x00\x00\x05\x00\x00\x00\x63x")) as rig:
        with pytest.raises(ConnectionError, match="malformed response"):
            await rig.request()


async def test_contact_is_recorded_only_for_nodes_with_a_known_address() -> None:
    rig = Rig(1)
    for node_id in range(1_000):
        rig.peers.note_contact(node_id)
    assert rig.peers.last_contact_ms(2) > NEVER_MS
    assert rig.peers.last_contact_ms(3) == NEVER_MS
    assert list(rig.peers._contacts_ms) == [2]
