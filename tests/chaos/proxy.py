"""A proxy that knows where a Kafka frame begins and ends, between the clients and the brokers and among the brokers.

One process, all links. Each door (a listen port) leads to one listener of one broker; who comes through it is told by the client id of the
first frame: `broker-2-...` is node 2, anything else a client. Of a frame only the length, the API key, the version, the correlation id and
the client id are read.

Commands come as JSON lines on standard input, what was seen goes to the journal. An EndTxn or a commit of offsets that still runs towards the
broker after its client has given the connection up is noted with its span of time: the classic protocol cannot tell it from one of a later
transaction, and no protocol tells it from a later commit of the same member.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from tests.chaos.journal import Journal, now

CLIENTS: Final = 0
"""The source of a link when it is not a node."""
REQUEST, ANSWER = "request", "answer"
BOTH: Final = (REQUEST, ANSWER)
OFFSET_COMMIT, END_TXN, TXN_OFFSET_COMMIT = 8, 26, 28
FRAME_BYTES_MAX: Final = 1 << 27
LINGER_SECONDS: Final = 60.0
"""How long a connection to a broker outlives its client while answers are missing."""
SOURCE: Final = re.compile(r"(?:broker|raft-client|node)-(\d+)|^(\d+)$")
HEAD: Final = struct.Struct(">hhih")


@dataclass
class Trap:
    """What is done to the next request of one of these kinds on a link: once."""

    action: str
    api_keys: tuple[int, ...]
    source: int
    target: int
    seconds: float
    until: float

    def fits(self, link: tuple[int, int], api_key: int) -> bool:
        return link == (self.source, self.target) and api_key in self.api_keys and now() < self.until


@dataclass(slots=True)
class Asked:
    """A request that has no answer yet. `lose` is set when its answer must not come through."""

    api_key: int
    version: int
    client_id: str
    since: float
    lose: bool = False


@dataclass(eq=False)
class Pair:
    """One connection of a client and the one to the broker that belongs to it."""

    target: int
    client_reader: asyncio.StreamReader
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    source: int = CLIENTS
    asked: dict[int, Asked] = field(default_factory=dict)
    client_left_at: float = 0.0

    @property
    def link(self) -> tuple[int, int]:
        return (self.source, self.target)

    def client_left(self) -> None:
        if not self.client_left_at:
            self.client_left_at = now()

    def reset(self) -> None:
        self.client_left()
        self.client.transport.abort()
        self.broker.transport.abort()


class Datagrams(asyncio.DatagramProtocol):
    """The same door for datagrams: they are lost while the link from their sender, told by its port, is shut."""

    def __init__(self, proxy: Proxy, target: int, broker_port: int) -> None:
        self.proxy = proxy
        self.target = target
        self.broker_port = broker_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        source = self.proxy.nodes_by_port.get(addr[1], CLIENTS)
        if (source, self.target, REQUEST) not in self.proxy.shut:
            self.proxy.counters["datagrams"] += 1
            cast("asyncio.DatagramTransport", self.transport).sendto(data, ("127.0.0.1", self.broker_port))


class Proxy:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.pairs: dict[Pair, None] = {}
        self.shut: dict[tuple[int, int, str], asyncio.Event] = {}
        self.nodes_by_port: dict[int, int] = {}
        self.traps: list[Trap] = []
        self.counters: Counter[str] = Counter()
        self._doors: list[asyncio.Server] = []
        self._datagrams: list[asyncio.DatagramTransport] = []
        self._visits: dict[asyncio.Task[None], None] = {}

    async def open_door(self, port: int, target: int, broker_port: int) -> None:
        async def visitor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._visits[task] = None
            try:
                await self.serve(reader, writer, target, broker_port)
            finally:
                del self._visits[task]

        self._doors.append(await asyncio.start_server(visitor, "127.0.0.1", port, limit=1 << 20, backlog=512))
        self.nodes_by_port[broker_port] = target
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Datagrams(self, target, broker_port), local_addr=("127.0.0.1", port)
        )
        self._datagrams.append(transport)

    async def close(self) -> None:
        for transport in self._datagrams:
            transport.close()
        for door in self._doors:
            door.close()
        self.command({"do": "heal"})
        for pair in self.pairs:
            pair.reset()
        for visit in list(self._visits):
            await asyncio.wait([visit])

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, broker_port: int
    ) -> None:
        try:
            broker_reader, broker = await asyncio.open_connection("127.0.0.1", broker_port, limit=1 << 20)
        except OSError:
            writer.transport.abort()
            return
        pair = Pair(target, reader, writer, broker)
        self.pairs[pair] = None
        self.counters["connections"] += 1
        answers = asyncio.create_task(self.carry_answers(pair, broker_reader))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self.carry_requests(pair)
            pair.client_left()
            if pair.asked:
                await asyncio.wait([answers], timeout=LINGER_SECONDS)
        finally:
            pair.broker.transport.abort()
            await asyncio.wait([answers], timeout=1.0)
            self.note_late(pair, list(pair.asked.values()))
            pair.reset()
            del self.pairs[pair]

    async def carry_requests(self, pair: Pair) -> None:
        """Frame by frame, in order. A frame that was read is carried on even when its client has left meanwhile."""
        first = True
        while True:
            size = await pair.client_reader.readexactly(4)
            length = int.from_bytes(size, "big")
            if not HEAD.size <= length <= FRAME_BYTES_MAX:
                pair.reset()
                return
            frame = await pair.client_reader.readexactly(length)
            api_key, version, correlation, name_bytes = HEAD.unpack_from(frame)
            name = frame[HEAD.size : HEAD.size + max(0, name_bytes)].decode(errors="replace")
            if first:
                first = False
                pair.source = source_of(name)
            asked = pair.asked[correlation] = Asked(api_key, version, name, now())
            self.counters["requests"] += 1
            if await self.spring(pair, asked, size + frame):
                return
            await self.pass_gate(pair, REQUEST)
            await send(pair.broker, size + frame)

    async def spring(self, pair: Pair, asked: Asked, whole: bytes) -> bool:
        """Do what a trap asks for. True when the connection ended by it."""
        trap = next((each for each in self.traps if each.fits(pair.link, asked.api_key)), None)
        if trap is None:
            return False
        self.traps.remove(trap)
        self.counters[trap.action] += 1
        self.journal.write(
            "trap", "info", action=trap.action, api=asked.api_key, client=asked.client_id, link=list(pair.link)
        )
        if trap.action == "hold":
            await asyncio.sleep(trap.seconds)
        elif trap.action == "lose":
            asked.lose = True
        elif trap.action == "half":
            await send(pair.broker, whole[: len(whole) // 2])
            pair.asked.clear()  # half a request cannot take effect
            pair.reset()
            return True
        return False

    async def carry_answers(self, pair: Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                asked = pair.asked.pop(int.from_bytes(frame[:4], "big"), None)
                if asked is not None and pair.client_left_at:
                    self.note_late(pair, [asked])
                if asked is not None and asked.lose:
                    pair.client_left()
                    pair.client.transport.abort()
                if pair.client_left_at:
                    if not pair.asked:
                        return
                    continue
                await self.pass_gate(pair, ANSWER)
                await send(pair.client, size + frame)
        if not pair.client_left_at:
            pair.client.close()

    async def pass_gate(self, pair: Pair, direction: str) -> None:
        gate = self.shut.get((*pair.link, direction))
        if gate is not None:
            await gate.wait()

    def note_late(self, pair: Pair, requests: list[Asked]) -> None:
        for asked in requests:
            if asked.api_key in {OFFSET_COMMIT, END_TXN, TXN_OFFSET_COMMIT}:
                span = {"since": pair.client_left_at or asked.since, "until": now()}
                what = {"client": asked.client_id, "api": asked.api_key, "version": asked.version}
                self.journal.write("late", "info", **what, **span)

    # -- commands

    def command(self, line: dict[str, Any]) -> None:
        match line["do"]:
            case "shut":
                for direction in line["directions"]:
                    self.shut.setdefault((line["source"], line["target"], direction), asyncio.Event())
            case "open":
                for direction in BOTH:
                    gate = self.shut.pop((line["source"], line["target"], direction), None)
                    if gate is not None:
                        gate.set()
            case "reset":
                for pair in list(self.pairs):
                    if pair.link == (line["source"], line["target"]):
                        pair.reset()
            case "trap":
                keys = tuple(line["api_keys"])
                until = now() + line["patience"]
                self.traps.append(Trap(line["action"], keys, line["source"], line["target"], line["seconds"], until))
            case "heal":
                for gate in self.shut.values():
                    gate.set()
                self.shut.clear()
                self.traps.clear()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Raises OSError when the connection has ended."""
    if writer.transport.is_closing():
        raise ConnectionResetError("closed meanwhile")
    writer.write(data)
    await writer.drain()


def source_of(client_id: str) -> int:
    found = SOURCE.search(client_id)
    return int(found[1] or found[2]) if found else CLIENTS


async def main() -> None:
    """Arguments: the journal, then PORT:NODE:BROKER_PORT for each door."""
    journal = Journal(Path(sys.argv[1]), "proxy")
    proxy = Proxy(journal)
    for door in sys.argv[2:]:
        port, target, broker_port = (int(part) for part in door.split(":"))
        await proxy.open_door(port, target, broker_port)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        proxy.command(json.loads(line))
        print("done", flush=True)
    await proxy.close()
    journal.write("proxy", "info", **proxy.counters)


if __name__ == "__main__":
    uvloop.run(main())
