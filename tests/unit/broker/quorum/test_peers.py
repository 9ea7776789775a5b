"""Connections between nodes: answers in order, losses told at once, nothing tried again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.peers import NEVER_MS, Channel, Peers
from odradek.protocol.codec import encode_response
from odradek.protocol.connection import parse_request
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.runtime.tasks import Tasks
from tests.support.ports import free_ports

Answer = Callable[[int, asyncio.StreamWriter], None]


def numbered(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    body = b"".join(encode_response(VoteRequest.API_KEY, 2, correlation_id, VoteResponse(correlation_id)))
    writer.write(len(body).to_bytes(4, "big") + body)


class Rig:
    def __init__(self, port: int) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.failures.append((name, error)))
        self.lost: list[tuple[int, bool]] = []
        self.serving: list[asyncio.Task[Any] | None] = []
        self.names: list[str | None] = []
        self.peers = Peers(1, lambda node, _: ("127.0.0.1", port) if node == 2 else None, SystemClock(), self.tasks)
        self.peers.on_lost(lambda node_id, refused: self.lost.append((node_id, refused)))

    def ask(self, node_id: int = 2, channel: Channel = Channel.RAFT, timeout_ms: int = 10_000) -> "asyncio.Future[Any]":
        return self.peers.request(node_id, channel, VoteRequest(), 2, timeout_ms=timeout_ms)


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[Rig]:
    """A node 2 that answers every request by `answer`."""
    [port] = free_ports(1)
    rig = Rig(port)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rig.serving.append(asyncio.current_task())
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = parse_request(await reader.readexactly(size))
                rig.names.append(frame.client_id)
                answer(frame.correlation_id, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield rig
    finally:
        rig.peers.close()
        server.close()
        await server.wait_closed()
        for task in rig.serving:
            assert task is not None
            await task
        await rig.tasks.cancel_all()
        assert not rig.failures


async def test_answers_belong_to_their_requests_and_purposes_have_their_own_connection() -> None:
    async with served(numbered) as rig:
        assert rig.peers.last_contact_ms(2) == NEVER_MS
        asked = [rig.ask() for _ in range(3)] + [rig.ask(channel=Channel.MARKERS)]
        assert [(await each).error_code for each in asked] == [0, 1, 2, 0]
        assert len(rig.serving) == 2
        assert sorted(rig.names, key=str) == ["broker-1-markers"] + ["broker-1-raft"] * 3
        assert rig.peers.last_contact_ms(2) > NEVER_MS
        assert rig.peers.last_refusal_ms(2) == NEVER_MS
        assert rig.lost == []


async def test_a_node_that_ends_the_connection_fails_all_that_waits_and_is_reached_anew() -> None:
    async with served(lambda number, writer: numbered(number, writer) if number else writer.close()) as rig:
        first, second = rig.ask(), rig.ask()
        with pytest.raises(ConnectionError, match="node 2 was lost"):
            await first
        with pytest.raises(ConnectionError):
            await second
        assert rig.lost == [(2, False)]
        with pytest.raises(ConnectionError):
            await rig.ask()
        assert len(rig.serving) == 2


async def test_where_nobody_listens_is_told_at_once() -> None:
    [port] = free_ports(1)
    rig = Rig(port)
    with pytest.raises(ConnectionError, match=r"node 2 at 127\.0\.0\.1:"):
        await rig.ask()
    assert rig.lost == [(2, True)]
    assert rig.peers.last_refusal_ms(2) > NEVER_MS
    with pytest.raises(ConnectionError, match="no address is known for node 3"):
        await rig.ask(3)
    rig.peers.close()
    with pytest.raises(ConnectionError, match="this node is shutting down"):
        await rig.ask()
    await rig.tasks.cancel_all()


async def test_an_answer_that_does_not_come_ends_the_connection_for_those_behind_it() -> None:
    async with served(lambda *_: None) as rig:
        first, second = rig.ask(timeout_ms=1), rig.ask()
        with pytest.raises(TimeoutError):
            await first
        with pytest.raises(ConnectionError, match="did not respond to an earlier request"):
            await second


async def test_a_connection_that_is_silent_is_ended_although_nobody_waits_for_the_answer_any_more() -> None:
    """A machine that lost its power says nothing: who gave up and asks again must not ask into the same void."""

    def once(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id == 0:
            numbered(correlation_id, writer)

    async with served(once) as rig:
        await rig.ask()
        first, second = rig.ask(timeout_ms=1), rig.ask()
        first.cancel()
        with pytest.raises(ConnectionError):
            await second


async def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_request() -> None:
    asked: list[tuple[int, asyncio.StreamWriter]] = []

    def held_back(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        """The second request is answered no sooner than the third."""
        asked.append((correlation_id, writer))
        for each in {1: asked, 2: [], 3: asked[1:]}[len(asked)]:
            numbered(*each)

    async with served(held_back) as rig:
        await rig.ask()
        with pytest.raises(TimeoutError):
            await rig.ask(timeout_ms=1)
        assert (await rig.ask()).error_code == 0, "the first answer of a new connection"
        assert len(rig.serving) == 2


async def test_garbage_ends_the_connection() -> None:
    async with served(lambda _, writer: writer.write(b"\x00\x00\x00\x05\x00\x00\x00\x63x")) as rig:
        with pytest.raises(ConnectionError, match="malformed response"):
            await rig.ask()
