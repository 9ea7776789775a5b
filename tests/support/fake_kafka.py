"""Scripted brokers on the simulator's event loop: in-memory connections and virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from odradek.protocol.codec import decode, encode_response
from odradek.protocol.connection import ServerConnection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import SIZE
from odradek.protocol.messages import APIS, request_class
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from odradek.protocol.connection import RequestFrame
    from odradek.protocol.schema import Message

HOST = "kafka.sim"
PORT_BASE = 9_090
REQUEST_BYTES_MAX = 2**24
T = TypeVar("T")


class Fault(Enum):
    """A broken response."""

    DISCONNECT = "close the connection"
    SILENCE = "send no response to this request and to all later ones of the connection"


@dataclass(frozen=True)
class RawBytes:
    """Bytes that are sent instead of a response. `then_close` closes the connection after them."""

    data: bytes
    then_close: bool = False


@dataclass(frozen=True)
class WrongCorrelationId:
    """A response with a correlation id that is off by `by`."""

    response: Message
    by: int


Step = Any
"""A response message, a Fault, RawBytes, WrongCorrelationId, or a function that returns one of them for a request."""


@dataclass(frozen=True)
class Received:
    """A request that a broker has received, on its nth connection (from 0)."""

    node_id: int
    connection: int
    request: Any
    version: int


@dataclass
class FakeKafka:
    """Brokers with node ids 1 to `count`. They serve versions, metadata and coordinators; all else is scripted.

    `leaders` maps topics to the leaders of their partitions, `coordinators` maps group ids and transactional ids to
    node ids.
    """

    loop: SimLoop
    count: int = 1
    leaders: dict[str, list[int]] = field(default_factory=dict)
    coordinators: dict[str, int] = field(default_factory=dict)
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    servers: dict[int, asyncio.AbstractServer] = field(default_factory=dict)
    connections: list[FakeConnection] = field(default_factory=list)
    scripts: dict[type[Message], deque[Step]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node_id) for node_id in range(1, self.count + 1))

    @staticmethod
    def address(node_id: int) -> str:
        return f"{HOST}:{PORT_BASE + node_id}"

    async def start(self, *node_ids: int) -> None:
        """Start the brokers with these node ids, or all."""
        for node_id in node_ids or range(1, self.count + 1):
            factory = self._factory(node_id)
            self.servers[node_id] = await self.loop.create_server(factory, HOST, PORT_BASE + node_id)

    def stop(self, node_id: int) -> None:
        """Stop a broker: its connections close, and new ones are refused."""
        self.servers.pop(node_id).close()
        for connection in self.connections:
            if connection.node_id == node_id:
                connection.transport.abort()

    def script(self, request: type[Message], *steps: Step) -> None:
        """Respond to the next requests of this kind with these steps, whichever broker receives them."""
        self.scripts.setdefault(request, deque()).extend(steps)

    def of(self, request: type[Message]) -> list[Received]:
        """Return the requests of one kind that were received."""
        return [each for each in self.received if isinstance(each.request, request)]

    def _factory(self, node_id: int) -> Callable[[], FakeConnection]:
        def make() -> FakeConnection:
            number = sum(each.node_id == node_id for each in self.connections)
            self.connections.append(FakeConnection(self, node_id, number))
            return self.connections[-1]

        return make

    def step(self, request: Message) -> Step:
        """Return the scripted step for a request, or the response of a broker without faults."""
        script = self.scripts.get(type(request))
        step = script.popleft() if script else self._default(request)
        return step(request) if callable(step) else step

    def _default(self, request: Message) -> Message:
        match request:
            case ApiVersionsRequest():
                known = {key: (request_class(key).MIN_VERSION, request_class(key).MAX_VERSION) for key in APIS}
                rows = [ApiVersion(key, *bounds) for key, bounds in (known | self.versions).items()]
                return ApiVersionsResponse(api_keys=rows)
            case MetadataRequest():
                return self._metadata(request)
            case FindCoordinatorRequest():
                found = [self._coordinator(key) for key in request.coordinator_keys]
                return FindCoordinatorResponse(coordinators=found)
            case _:
                raise AssertionError(f"no step for {request}")

    def _coordinator(self, key: str) -> Coordinator:
        node_id = self.coordinators.get(key, 1)
        return Coordinator(key=key, node_id=node_id, host=HOST, port=PORT_BASE + node_id)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.leaders) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=HOST, port=PORT_BASE + node_id)
                for node_id in range(1, self.count + 1)
            ],
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        replicas = list(range(1, self.count + 1))
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=replicas
            )
            for index, leader in enumerate(self.leaders[name])
        ]
        return MetadataResponseTopic(name=name, topic_id=UUID(int=len(name)), partitions=partitions)


class FakeConnection(asyncio.Protocol):
    """The broker's end of one connection."""

    transport: asyncio.Transport

    def __init__(self, kafka: FakeKafka, node_id: int, number: int) -> None:
        self.node_id = node_id
        self._kafka = kafka
        self._number = number
        self._silent = False
        self._core = ServerConnection(request_bytes_max=REQUEST_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports of TLS are no subclass

    def data_received(self, data: bytes) -> None:
        self._core.receive_data(data)
        while (frame := self._core.next_request()) is not None:
            self._respond(frame)

    def _respond(self, frame: RequestFrame) -> None:
        request = decode(request_class(frame.api_key), frame.api_version, frame.body)
        self._kafka.received.append(Received(self.node_id, self._number, request, frame.api_version))
        match self._kafka.step(request):
            case Fault.DISCONNECT:
                self.transport.abort()
            case Fault.SILENCE:
                self._silent = True
            case _ if self._silent:  # responses keep the order of the requests
                pass
            case RawBytes(data, then_close):
                self.transport.write(data)
                if then_close:
                    self.transport.close()
            case WrongCorrelationId(response, by):
                self._send(frame, response, frame.correlation_id + by)
            case response:
                self._send(frame, response, frame.correlation_id)

    def _send(self, frame: RequestFrame, response: Message, correlation_id: int) -> None:
        version = frame.api_version
        if getattr(response, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # as a broker that does not know the requested version (KIP-511)
        body = b"".join(map(bytes, encode_response(frame.api_key, version, correlation_id, response)))
        self.transport.write(SIZE.pack(len(body)) + body)


@contextmanager
def virtual_loop(seed: int = 1) -> Iterator[SimLoop]:
    """Provide an event loop with virtual time as the current one."""
    rng = Random(seed)
    loop = SimLoop(rng, network=Network(rng, framed=False))
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def run(kafka: FakeKafka, test: Coroutine[Any, Any, T]) -> T:
    """Start all brokers that are not running, and run a test."""

    async def started() -> T:
        if missing := [node_id for node_id in range(1, kafka.count + 1) if node_id not in kafka.servers]:
            await kafka.start(*missing)
        return await test

    result = kafka.loop.run_until_complete(started())
    assert kafka.loop.failures == [], kafka.loop.describe_failures()
    return result
