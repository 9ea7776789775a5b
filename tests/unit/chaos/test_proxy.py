"""The proxy, between a client and a broker that are both made by hand."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.chaos.journal import Journal, events_of
from tests.chaos.proxy import BOTH, CLIENTS, END_TXN, Proxy, source_of
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PRODUCE = 0
NODE = 2
PATIENCE_SECONDS = 10.0


def frame(api_key: int, correlation: int, client_id: str = "app", version: int = 3) -> bytes:
    name = client_id.encode()
    body = struct.pack(">hhih", api_key, version, correlation, len(name)) + name + b"body"
    return struct.pack(">i", len(body)) + body


class Broker:
    """Takes frames; answers each with its correlation id as soon as `may_answer` is set."""

    def __init__(self) -> None:
        self.port = free_port()
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.broken = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size, "big"))
                self.frames.put_nowait(body)
                await self.may_answer.wait()
                writer.write(struct.pack(">i", 4) + body[4:8])
        except (OSError, asyncio.IncompleteReadError):
            self.broken.set()
        finally:
            writer.transport.abort()


class Rig:
    def __init__(self, journal: Path) -> None:
        self.path = journal
        self.proxy = Proxy(Journal(journal, "proxy"))
        self.broker = Broker()
        self.door = free_port()
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.door)
        self.writers.append(writer)
        return reader, writer

    def trap(self, action: str, api_key: int, seconds: float = 0.0, source: int = CLIENTS) -> None:
        line = {"do": "trap", "action": action, "api_keys": [api_key], "source": source, "target": NODE}
        self.proxy.command(line | {"seconds": seconds, "patience": PATIENCE_SECONDS})

    def noted(self, op: str) -> list[dict[str, object]]:
        return [event for event in events_of(self.path) if event["op"] == op]


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "proxy.jsonl")
    server = await asyncio.start_server(rig.broker.serve, "127.0.0.1", rig.broker.port)
    await rig.proxy.open_door(rig.door, NODE, rig.broker.port)
    async with asyncio.timeout(PATIENCE_SECONDS):
        yield rig
        for writer in rig.writers:
            writer.transport.abort()
        await rig.proxy.close()
        server.close()
        await server.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)  # what was aborted is told so


async def answer_of(reader: asyncio.StreamReader) -> int:
    return int.from_bytes((await reader.readexactly(8))[4:], "big")


async def test_frames_go_through_in_both_directions(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        reader, writer = await rig.connect()
        for correlation in (1, 2):
            writer.write(frame(PRODUCE, correlation))
            assert await answer_of(reader) == correlation
        writer.close()


async def test_a_shut_link_lets_nothing_through_until_it_opens(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.proxy.command({"do": "shut", "source": CLIENTS, "target": NODE, "directions": BOTH})
        reader, writer = await rig.connect()
        other_reader, other = await rig.connect()
        other.write(frame(PRODUCE, 9, "broker-1-fetch"))
        assert await answer_of(other_reader) == 9
        writer.write(frame(PRODUCE, 1))
        await writer.drain()
        while not any(pair.asked for pair in rig.proxy.pairs):
            await asyncio.sleep(0)
        assert rig.broker.frames.qsize() == 1
        rig.proxy.command({"do": "open", "source": CLIENTS, "target": NODE})
        assert await answer_of(reader) == 1
        writer.close()
        other.close()


async def test_a_lost_answer_was_applied_and_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.trap("lose", PRODUCE)
        reader, writer = await rig.connect()
        writer.write(frame(PRODUCE, 1))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer_of(reader)
        assert rig.broker.frames.qsize() == 1
        writer.close()


async def test_half_a_frame_reaches_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.trap("half", PRODUCE)
        reader, writer = await rig.connect()
        writer.write(frame(PRODUCE, 1))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer_of(reader)
        await rig.broker.broken.wait()
        assert rig.broker.frames.empty()
        writer.close()


async def test_a_held_end_of_a_transaction_arrives_after_its_client_has_left_and_is_noted(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.trap("hold", END_TXN, seconds=0.05)
        rig.broker.may_answer.clear()
        _, writer = await rig.connect()
        writer.write(frame(END_TXN, 1, "tx-7"))
        await writer.drain()
        writer.close()
        await rig.broker.frames.get()
        assert rig.noted("late") == []
        (pair,) = rig.proxy.pairs
        while not pair.client_left_at:
            await asyncio.sleep(0)
        rig.broker.may_answer.set()
        await rig.broker.broken.wait()
        while not rig.noted("late"):
            await asyncio.sleep(0)
        (late,) = rig.noted("late")
        assert late["client"] == "tx-7"


async def test_an_answered_end_of_a_transaction_is_not_late(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        reader, writer = await rig.connect()
        writer.write(frame(END_TXN, 1, "tx-7"))
        assert await answer_of(reader) == 1
        writer.close()
        await rig.broker.broken.wait()
        assert rig.noted("late") == []


@pytest.mark.parametrize(
    ("client_id", "node"),
    [("broker-2-fetch", 2), ("broker-1-fetcher-0", 1), ("raft-client-3", 3), ("3", 3), ("tx-java-4", 0), ("c003", 0)],
)
def test_who_comes_is_told_by_the_client_id(client_id: str, node: int) -> None:
    assert source_of(client_id) == node
