"""The chaos proxy between a scripted client and a scripted broker."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.chaos.journal import Journal, events_of, now
from tests.chaos.proxy import BOTH, CLIENTS, END_TXN, Proxy, source_of
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PRODUCE = 0
NODE = 2
TIMEOUT_SECONDS = 10.0


def frame(api_key: int, correlation: int, client_id: str = "app", version: int = 3) -> bytes:
    name = client_id.encode()
    body = struct.pack(">hhih", api_key, version, correlation, len(name)) + name + b"body"
    return struct.pack(">i", len(body)) + body


class Broker:
    """Receives frames, and responds to each with its correlation id once `may_respond` is set."""

    def __init__(self) -> None:
        self.port = free_port()
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_respond = asyncio.Event()
        self.may_respond.set()
        self.disconnected = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size, "big"))
                self.frames.put_nowait(body)
                await self.may_respond.wait()
                writer.write(struct.pack(">i", 4) + body[4:8])
        except (OSError, asyncio.IncompleteReadError):
            self.disconnected.set()
        finally:
            writer.transport.abort()


class Rig:
    def __init__(self, journal: Path) -> None:
        self.path = journal
        self.proxy = Proxy(Journal(journal, "proxy"))
        self.broker = Broker()
        self.port = free_port()
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    def inject(self, action: str, api_key: int, seconds: float = 0.0, source: int = CLIENTS) -> None:
        line = {"command": "frame_fault", "action": action, "api_keys": [api_key], "source": source, "target": NODE}
        self.proxy.command(line | {"seconds": seconds, "lifetime": TIMEOUT_SECONDS})

    def notes(self, op: str) -> list[dict[str, object]]:
        return [event for event in events_of(self.path) if event["op"] == op]


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "proxy.jsonl")
    server = await asyncio.start_server(rig.broker.serve, "127.0.0.1", rig.broker.port)
    await rig.proxy.listen(rig.port, NODE, rig.broker.port)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        yield rig
        for writer in rig.writers:
            writer.transport.abort()
        await rig.proxy.close()
        server.close()
        await server.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)  # the handlers of aborted connections end


async def read_response(reader: asyncio.StreamReader) -> int:
    return int.from_bytes((await reader.readexactly(8))[4:], "big")


async def test_frames_are_forwarded_in_both_directions(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        reader, writer = await rig.connect()
        for correlation in (1, 2):
            writer.write(frame(PRODUCE, correlation))
            assert await read_response(reader) == correlation
        writer.close()


async def test_blocked_link_forwards_no_frame_until_it_is_unblocked(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.proxy.command({"command": "block", "source": CLIENTS, "target": NODE, "directions": BOTH})
        reader, writer = await rig.connect()
        other_reader, other = await rig.connect()
        other.write(frame(PRODUCE, 9, "broker-1-fetch"))
        assert await read_response(other_reader) == 9
        writer.write(frame(PRODUCE, 1))
        await writer.drain()
        while not any(connection.pending for connection in rig.proxy.connections):
            await asyncio.sleep(0)
        assert rig.broker.frames.qsize() == 1
        rig.proxy.command({"command": "unblock", "source": CLIENTS, "target": NODE})
        assert await read_response(reader) == 1
        writer.close()
        other.close()


async def test_request_with_lost_response_reaches_the_broker_and_its_connection_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.inject("lose_response", PRODUCE)
        reader, writer = await rig.connect()
        writer.write(frame(PRODUCE, 1))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await read_response(reader)
        assert rig.broker.frames.qsize() == 1
        writer.close()


async def test_half_frame_closes_the_connection_and_the_broker_receives_no_request(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.inject("half_frame", PRODUCE)
        reader, writer = await rig.connect()
        writer.write(frame(PRODUCE, 1))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await read_response(reader)
        await rig.broker.disconnected.wait()
        assert rig.broker.frames.empty()
        writer.close()


async def test_held_end_txn_that_arrives_after_its_client_left_is_recorded_as_late(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.inject("hold_request", END_TXN, seconds=0.05)
        rig.broker.may_respond.clear()
        _, writer = await rig.connect()
        writer.write(frame(END_TXN, 1, "tx-7"))
        while not rig.notes("frame fault"):
            await asyncio.sleep(0)
        left_at = now()
        writer.close()
        await rig.broker.frames.get()
        assert rig.notes("late") == []
        (connection,) = rig.proxy.connections
        while not connection.client_left_at:
            await asyncio.sleep(0)
        rig.broker.may_respond.set()
        await rig.broker.disconnected.wait()
        while not rig.notes("late"):
            await asyncio.sleep(0)
        (late,) = rig.notes("late")
        assert late["client"] == "tx-7"
        sent, since = late["sent"], late["since"]
        assert isinstance(sent, float)
        assert isinstance(since, float)
        assert sent <= left_at <= since


async def test_end_txn_with_a_response_is_not_late(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        reader, writer = await rig.connect()
        writer.write(frame(END_TXN, 1, "tx-7"))
        assert await read_response(reader) == 1
        writer.close()
        await rig.broker.disconnected.wait()
        assert rig.notes("late") == []


@pytest.mark.parametrize(
    ("client_id", "node"),
    [("broker-2-fetch", 2), ("broker-1-fetcher-0", 1), ("raft-client-3", 3), ("3", 3), ("tx-java-4", 0), ("c003", 0)],
)
def test_source_of_a_link_follows_from_the_client_id(client_id: str, node: int) -> None:
    assert source_of(client_id) == node
