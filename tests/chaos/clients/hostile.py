"""A client process that attacks the brokers as long as it runs, with the repertoire of `tests.support.hostile`.

It connects to the brokers directly, not by way of the proxy. It exits when its standard input ends.

In a secured run it has a user without ACLs. A part of its attacks is carried out before the TLS handshake or before the
login, and it tries to read what other tenants have (`tests.chaos.snooping`). It has an address of its own, because the
limit of failed logins is one per address.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.client.security.tls import context_of
from odradek.pipeline.cluster.access import Access
from odradek.protocol.codec import decode, decode_prefix, response_header_version
from odradek.protocol.messages import response_class
from odradek.protocol.messages.headers import ResponseHeader
from odradek.protocol.messages.metadata import MetadataRequest
from tests.chaos.clients.login import LoginRefused, log_in
from tests.chaos.journal import Journal
from tests.chaos.snooping import Names, learnt, make_probe
from tests.sim.checkers.hostile import CLOSED, RESPONDED, UNREACHABLE
from tests.support.hostile import Repertoire
from tests.support.hostile_attack import CLIENT_ID, EXPANDING, HUGE, KINDS, REAL, Attack, is_refused
from tests.support.hostile_forged import Victim
from tests.support.raw_client import RawClient, encode_request

if TYPE_CHECKING:
    import ssl

    from odradek.protocol.schema import Message

ATTACKS_PER_SECOND: Final = 8.0
"""Mean rate of attacks. Honest clients must make progress beside them on two processor cores."""
BYTES_PER_SECOND: Final = 1 << 20
"""Mean rate of bytes: after a huge array of 8 MiB, the next huge array follows 8 s later at the earliest."""
OPEN_MAX: Final = 64
"""Maximum attacks that wait for the broker at the same time."""
RESPONSE_SECONDS_MAX: Final = 20.0
"""Time after which the client closes a connection, in seconds."""
PATIENCE_SECONDS: Final = 4.0
"""Time for which the client keeps a connection open if no response is due, in seconds."""
CONNECT_SECONDS: Final = 5.0
CONNECTIONS: Final = 150
"""Connections of a flood. The brokers permit any number by default."""
SLOW_REQUESTS: Final = 50
READ_BYTES: Final = 1 << 16
ADDRESS: Final = ("127.0.0.2", 0)
"""Local address of the connections of this client."""
SNOOP: Final = "reading without rights"
SNOOP_SHARE: Final = 0.25
"""Share of the attacks of a secured run that try to read."""
PROBES: Final = 4
"""Requests of one connection that tries to read."""
PLAIN_SHARE: Final = 0.2
"""Share of connections without TLS in a secured run."""
LOGIN_FROM: Final = 0.6
"""Value of a random number from 0 to 1 from which a connection of a secured run is logged in."""
HANDSHAKE_START: Final = b"\x16\x03\x01\x02\x00\x01\x00"
"""Begin of a TLS handshake, which this client does not continue."""
METADATA_VERSION: Final = 12
FLOOD, SLOW = "flood of connections", "slow reader"
PROCESS_KINDS: Final = (*KINDS, FLOOD, SLOW)
"""All kinds of attacks of this process."""
SMALL_KINDS: Final = tuple(kind for kind in PROCESS_KINDS if kind not in {HUGE, EXPANDING})
NICE: Final = 5
"""Lower priority than honest clients, which share the processor cores."""
SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True)
class HostileSpec:
    """Specification of the process. `clients` and `brokers` are the ports of the two listeners by node id."""

    seed: int
    process: str
    journal: str
    cluster_id: str
    clients: dict[str, int]
    brokers: dict[str, int]
    security: str = ""
    """File with the client properties of its user; empty without security."""
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic id and partition count of its topics, which a user without ACLs cannot look up."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Names of other tenants, by the fields of `tests.chaos.snooping.Names`."""

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class HostileProcess:
    """Sends attacks at a bounded rate, and records the outcome of each in the journal."""

    spec: HostileSpec
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    _large_at: float = 0.0
    """Time at which the rate of bytes permits the next large attack."""

    def __post_init__(self) -> None:
        self._rng = Random(self.spec.seed)
        self._victim = Victim(tuple(map(int, self.spec.clients)), self.spec.cluster_id)
        self._repertoire = Repertoire(self._rng, self._victim, REAL)
        self._journal = Journal(Path(self.spec.journal), self.spec.process)
        self._access = Access.of_file("", Path(self.spec.security)) if self.spec.security else None
        self._names = Names(**{kind: tuple(names) for kind, names in self.spec.names.items()}) if self._access else None
        self._victim.topics |= {name: (UUID(topic_id), count) for name, (topic_id, count) in self.spec.topics.items()}

    async def run(self) -> None:
        """Attack until the standard input ends."""
        await self._learn_topics()
        while not self.stopping.is_set():
            attack = self._next()
            if len(self._tasks) < OPEN_MAX:
                task = asyncio.create_task(self._carry_out(attack))
                self._tasks[task] = None
                task.add_done_callback(self._done)
            pause = self._rng.expovariate(ATTACKS_PER_SECOND)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause)
        for task in list(self._tasks):
            task.cancel()

    def _next(self) -> Attack:
        now = asyncio.get_running_loop().time()
        kinds = PROCESS_KINDS if now >= self._large_at else SMALL_KINDS
        kind = self._rng.choice(kinds)
        if self._names is not None and self._rng.random() < SNOOP_SHARE:
            kind = SNOOP
        if kind in {FLOOD, SLOW, SNOOP}:
            return Attack(kind, kind, b"")
        attack = self._repertoire.make(kind)
        self._large_at = max(self._large_at, now) + len(attack.data) / BYTES_PER_SECOND
        return attack

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.result()

    def _address(self, attack: Attack) -> tuple[str, int]:
        node = self._rng.choice(list(self.spec.clients))
        return "127.0.0.1", (self.spec.brokers if attack.internal else self.spec.clients)[node]

    async def _learn_topics(self) -> None:
        while not self.stopping.is_set() and not self._victim.topics:
            try:
                client = await RawClient.connect(*self._address(Attack("", "", b"")), client_id=CLIENT_ID)
                response = await client.call(MetadataRequest(None), METADATA_VERSION, timeout=CONNECT_SECONDS)
                client.close()
            except OSError:
                await asyncio.sleep(1 / ATTACKS_PER_SECOND)
                continue
            self._victim.topics |= {
                topic.name: (topic.topic_id, len(topic.partitions)) for topic in response.topics if topic.partitions
            }

    async def _carry_out(self, attack: Attack) -> None:
        outcome, carried_out = UNREACHABLE, False
        try:
            async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                if attack.kind == FLOOD:
                    outcome = await self._flood()
                elif attack.kind == SLOW:
                    outcome = await self._read_slowly()
                elif attack.kind == SNOOP:
                    outcome = await self._snoop()
                else:
                    outcome, carried_out = await self._exchange(attack)
        except TimeoutError:
            outcome = "no response"
        except (OSError, asyncio.IncompleteReadError, LoginRefused):
            outcome = UNREACHABLE
        self._journal.write(
            "hostile", "info", attack=attack.kind, what=attack.what, outcome=outcome, carried_out=carried_out
        )

    async def _exchange(self, attack: Attack) -> tuple[str, bool]:
        """Send the attack on a new connection. Return the outcome, and True if it was carried out."""
        reader, writer = await self._connection(attack)
        frames: list[bytes] = []
        try:
            writer.write(attack.data)
            if attack.half_close and writer.can_write_eof():
                writer.write_eof()
            patience = RESPONSE_SECONDS_MAX if attack.requests and not attack.waits else PATIENCE_SECONDS
            async with asyncio.timeout(patience):
                while attack.closed or not attack.requests or len(frames) < attack.requests:
                    frames.append(await _frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            return CLOSED, _is_carried_out(attack, frames)
        except TimeoutError:
            if attack.requests and not attack.waits:
                raise
        finally:
            writer.close()
        return RESPONDED, _is_carried_out(attack, frames)

    async def _connection(self, attack: Attack) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a new connection. In a secured run, most of them have TLS, and half of those are logged in."""
        access, choice = self._access, self._rng.random()
        context = None if access is None or choice < PLAIN_SHARE else self._context()
        reader, writer = await asyncio.open_connection(
            *self._address(attack), limit=READ_BYTES, ssl=context, local_addr=ADDRESS
        )
        if access is not None and choice >= LOGIN_FROM and not attack.internal:

            async def call(request: Message, version: int) -> Message:
                writer.write(encode_request(request, version, 0, CLIENT_ID))
                _, start = decode_prefix(
                    ResponseHeader, response_header_version(request.API_KEY, version), frame := await _frame(reader)
                )
                return decode(response_class(request.API_KEY), version, frame[start:])

            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await log_in(call, access)
            except BaseException:
                writer.close()
                raise
        return reader, writer

    def _context(self) -> ssl.SSLContext:
        assert self._access is not None
        tls = self._access.security.tls
        assert tls is not None
        return context_of(tls)

    async def _snoop(self) -> str:
        """Send requests for resources of other tenants, and record what the responses reveal."""
        assert self._access is not None
        assert self._names is not None
        address = self._address(Attack(SNOOP, "", b""))
        client = await RawClient.connect(*address, client_id=CLIENT_ID, tls=self._context(), local_addr=ADDRESS)
        try:
            await log_in(partial(client.call, timeout=CONNECT_SECONDS), self._access)
            for _ in range(PROBES):
                probe = make_probe(self._rng, self._names)
                response = await client.call(probe.request, probe.version, timeout=CONNECT_SECONDS)
                other = probe.missing
                missing = None if other is None else await client.call(other, probe.version, timeout=CONNECT_SECONDS)
                for fact in learnt(probe, response, missing, self._names):
                    self._journal.write("learnt", "info", fact=fact)
        finally:
            client.close()
        return RESPONDED

    async def _flood(self) -> str:
        """Open many connections, keep them open without a request, and close them."""
        writers: list[asyncio.StreamWriter] = []
        try:
            for _ in range(CONNECTIONS):
                _, writer = await asyncio.open_connection(*self._address(Attack(FLOOD, "", b"")), local_addr=ADDRESS)
                if self._access is not None:
                    writer.write(HANDSHAKE_START)
                writers.append(writer)
            await asyncio.sleep(PATIENCE_SECONDS * self._rng.random())
        finally:
            for writer in writers:
                writer.close()
        return RESPONDED

    async def _read_slowly(self) -> str:
        """Send many requests with large responses, and read a few bytes now and then."""
        request = MetadataRequest(None)
        reader, writer = await self._connection(Attack(SLOW, "", b""))
        try:
            for number in range(SLOW_REQUESTS):
                writer.write(encode_request(request, METADATA_VERSION, number, CLIENT_ID))
            for _ in range(int(PATIENCE_SECONDS)):
                await asyncio.sleep(1.0)
                if not await reader.read(1):
                    return CLOSED
        finally:
            writer.close()
        return RESPONDED


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next response. The rest of a large response is read and dropped."""
    size = SIZE.unpack(await reader.readexactly(SIZE.size))[0]
    start = await reader.readexactly(min(size, READ_BYTES))
    rest = size - len(start)
    while rest:
        read = await reader.read(min(rest, READ_BYTES))
        if not read:
            raise asyncio.IncompleteReadError(start, size)
        rest -= len(read)
    return start


def _is_carried_out(attack: Attack, frames: list[bytes]) -> bool:
    """Return True if a response shows that a broker carried out a request that it must refuse."""
    if not attack.refused or not frames:
        return False
    if attack.api_key < 0:
        return True
    _, start = decode_prefix(ResponseHeader, response_header_version(attack.api_key, attack.version), frames[0])
    response: Message = decode(response_class(attack.api_key), attack.version, frames[0][start:])
    return not is_refused(response)


async def attack_until_stopped() -> None:
    """Run the process of the specification in the first argument."""
    process = HostileProcess(HostileSpec(**json.loads(sys.argv[1])))
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _read_input, process.stopping)
    await process.run()


def _read_input(stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 64):
        stopping.set()


if __name__ == "__main__":
    os.nice(NICE)
    asyncio.run(attack_until_stopped())
