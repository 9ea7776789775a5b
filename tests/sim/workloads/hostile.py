"""A hostile client among honest ones: it sends what `tests.support.hostile` builds, to the client port of any broker.

Its host is not that of the honest clients: faults of the network do not affect it, and limits per address keep it apart
from them. It never uses the topics, transactional ids or groups of honest clients.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, cast

from odradek.protocol.codec import decode, decode_prefix, response_header_version
from odradek.protocol.messages import response_class
from odradek.protocol.messages.headers import ResponseHeader
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.simulation.environment.links import HOSTILE
from tests.sim.checkers.hostile import CLOSED, RESPONDED, UNANSWERED, UNREACHABLE, HostileRequest
from tests.sim.cluster.node_config import CLUSTER_ID
from tests.sim.workloads.client import CONNECT_SECONDS
from tests.sim.world import INTERNAL_PORT, PORT, host_name
from tests.support.hostile import Repertoire
from tests.support.hostile_attack import SIMULATED, Attack, is_refused
from tests.support.hostile_forged import Victim
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.sim.options.hostile_options import HostileOptions
    from tests.sim.world import World

SIZE: Final = struct.Struct(">i")
RESPONSE_SECONDS_MAX: Final = 30.0
"""Time in which a running broker responds or closes the connection, in seconds. A paused broker continues after 3 s."""
PATIENCE_SECONDS: Final = 1.0
"""Time for which the client keeps a connection open if no response is due, in seconds."""
OPEN_MAX: Final = 16
"""Maximum connections that the client has open."""
METADATA_VERSION: Final = 12


class HostileConnection(asyncio.Protocol):
    """One connection: it collects whole frames, and notes the end of the stream."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = False
        self.changed = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= SIZE.size:
            end = SIZE.size + SIZE.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            self.frames.append(bytes(self._buffer[SIZE.size : end]))
            del self._buffer[:end]
            self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.changed.set()

    async def settled(self, attack: Attack) -> None:
        """Wait until the connection is closed, or has received a response to each request of the attack.

        Without a request, wait until the connection is closed.
        """
        has_responses_due = attack.requests > 0 and not attack.closed
        while not self.closed and not (has_responses_due and len(self.frames) >= attack.requests):
            self.changed.clear()
            await self.changed.wait()


@dataclass
class HostileClient:
    """Sends attacks until the honest clients stop, and records what became of each."""

    world: "World"
    options: "HostileOptions"
    on_success: Callable[[], object]
    """Ends the run when a broker has carried out a request that it must refuse."""
    requests: list[HostileRequest] = field(default_factory=list)
    _open: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.world.options
        self._rng = Random(f"hostile client, seed {options.seed}")
        self._victim = Victim(tuple(range(1, options.brokers + 1)), CLUSTER_ID)
        self._repertoire = Repertoire(self._rng, self._victim, SIMULATED, self.options.kinds)

    async def run(self) -> None:
        """Attack until the run stops, then wait for the open connections."""
        await self._learn_topics()
        while not self.world.stopping:
            await asyncio.sleep(self._rng.random() * 2 * self.options.think_seconds)
            if len(self._open) < OPEN_MAX:
                loop = self.world.loop
                task = loop.spawn(HOSTILE, self._carry_out(self._repertoire.next()), "attack")
                self._open[task] = None
                task.add_done_callback(self._done)
        while self._open:
            await asyncio.wait(list(self._open))

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        task.result()

    async def _learn_topics(self) -> None:
        """Learn the topics of the cluster from any broker, as each client can."""
        while not self.world.stopping and not self._victim.topics:
            try:
                client = await RawClient.connect(*self._address(Attack("", "", b""))[1:], client_id="hostile")
                response = await client.call(MetadataRequest(None), METADATA_VERSION, timeout=CONNECT_SECONDS)
                client.close()
            except OSError:
                await asyncio.sleep(self.options.think_seconds)
                continue
            self._victim.topics |= {
                topic.name: (topic.topic_id, len(topic.partitions)) for topic in response.topics if topic.partitions
            }

    def _address(self, attack: Attack) -> tuple[int, str, int]:
        number = self._rng.choice(self._victim.nodes)
        return number, host_name(number), INTERNAL_PORT if attack.internal else PORT

    async def _carry_out(self, attack: Attack) -> None:
        number, host, port = self._address(attack)
        machine = self.world.cluster.machine(number)
        request = HostileRequest(attack.kind, attack.what, machine.name or host)
        self.requests.append(request)
        try:
            connecting = self.world.loop.create_connection(HostileConnection, host, port)
            _, protocol = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except OSError:
            request.outcome = UNREACHABLE
            return
        connection = cast("HostileConnection", protocol)
        assert connection.transport is not None
        incarnation = machine.name
        self.world.count(f"hostile: {attack.kind}")
        connection.transport.write(attack.data)
        if attack.half_close:
            connection.transport.write_eof()
        is_due = attack.requests > 0 and not attack.waits
        try:
            await asyncio.wait_for(connection.settled(attack), RESPONSE_SECONDS_MAX if is_due else PATIENCE_SECONDS)
        except TimeoutError:
            is_up = machine.name == incarnation and machine.up.is_set()
            request.outcome = UNANSWERED if is_due and is_up else UNREACHABLE
        else:
            request.outcome = CLOSED if connection.closed else RESPONDED
        request.carried_out = self._carried_out(attack, connection)
        if request.carried_out:
            self.on_success()
        if self._rng.random() < 0.5:
            connection.transport.abort()
        else:
            connection.transport.close()

    @staticmethod
    def _carried_out(attack: Attack, connection: HostileConnection) -> bool:
        """Return True if a response shows that a broker carried out a request that it must refuse."""
        if not attack.refused or not connection.frames:
            return False
        if attack.api_key < 0:
            return True
        frame = connection.frames[0]
        _, start = decode_prefix(ResponseHeader, response_header_version(attack.api_key, attack.version), frame)
        response: Message = decode(response_class(attack.api_key), attack.version, frame[start:])
        return not is_refused(response)
