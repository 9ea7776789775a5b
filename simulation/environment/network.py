"""Simulated network: byte streams with latency generated from the seed, and faults aligned to Kafka frames.

Each direction of a connection is FIFO, like TCP. Reordering of requests needs several connections: a frame is held
back, its connection is reset, and the frame arrives on another connection after the client has retried.
"""

import asyncio
import itertools
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.environment.datagrams import DOUBLE_PROBABILITY, LOSS_PROBABILITY, Address, SimDatagrams
from odradek.simulation.environment.links import CLIENTS, HOSTILE, Links, host_of
from odradek.simulation.environment.transport import FakeSocket, Pipe, SimServer, SimTransport

if TYPE_CHECKING:
    from odradek.simulation.environment.loop import SimLoop

ANY_HOST: Final = ("", "0.0.0.0", "::")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
EPHEMERAL_PORT_FIRST: Final = 40_000
CONNECT_SECONDS: Final = 130.0
"""Time-out of a connection attempt without any reply, in seconds."""
BROKERS: Final = "brokers"
"""Any broker, as the source of a frame."""
FRAME_PREFIX = struct.Struct(">ihhi")


@dataclass(slots=True)
class Latency:
    """Seconds between sending and arrival: uniform in [min, max], with rare outliers."""

    seconds_min: float = 0.0001
    seconds_max: float = 0.002
    slow_probability: float = 0.01
    slow_seconds_max: float = 0.05

    def sample(self, rng: Random) -> float:
        if self.slow_probability and rng.random() < self.slow_probability:
            return self.seconds_max + rng.random() * self.slow_seconds_max
        return self.seconds_min + rng.random() * (self.seconds_max - self.seconds_min)


@dataclass(slots=True)
class FrameFault:
    """Fault for the next matching frame: `kind` is one of the kinds below; empty `api_keys` match any.

    - lose_response: the request is applied, its response never arrives, and the connection is reset.
    - hold_request: the connection is reset, and the request arrives on a new connection after `delay` seconds.
    - replay_request: the request arrives, its connection is reset, and the request arrives again on a new connection
      after `delay` seconds.
    - tear_request: a part of the request arrives, then the connection is reset.
    - tear_response: a part of the response arrives, then the connection is reset.
    """

    kind: str
    api_keys: tuple[int, ...] = ()
    delay: float = 0.0
    source: str = ""
    """Host that sends the request; empty matches any. `destination` is the host that responds."""
    destination: str = ""
    injected: bool = False

    @property
    def on_request(self) -> bool:
        return self.kind in {"hold_request", "tear_request", "replay_request"}

    def fits(self, pipe: Pipe, api_key: int) -> bool:
        if self.on_request != pipe.is_request or (self.api_keys and api_key not in self.api_keys):
            return False
        requester, responder = pipe.link if pipe.is_request else pipe.link[::-1]
        if self.source == BROKERS:
            return requester != CLIENTS and self.destination in {"", responder}
        return self.source in {"", requester} and self.destination in {"", responder}


class Network:
    """Listeners, connections and UDP sockets by (host, port), bound to one loop."""

    def __init__(self, rng: Random, *, latency: Latency | None = None, framed: bool = True) -> None:
        self.rng = rng
        self.latency = latency or Latency()
        self.framed = framed
        self.unframed_hosts: frozenset[str] = frozenset()
        """Hosts of an application. Its connections between them can have any protocol, without Kafka's frames."""
        self.faults: list[FrameFault] = []
        self.blocked_until = 0.0
        self.links = Links()
        self.requests: Counter[int] = Counter()
        """Number of sent requests by API key."""
        self.on_fault: Callable[[FrameFault, int, bytes], None] | None = None
        self.on_late_delivery: Callable[[bytes], None] | None = None
        self.log_in: Callable[[SimTransport, str, tuple[str, int], bytes], Awaitable[None]] | None = None
        """Authenticate a new connection of a sender to a host and port before its delayed frame arrives there."""
        self._loop: SimLoop | None = None
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._connections: dict[int, tuple[SimTransport, SimTransport]] = {}
        self._sockets: dict[Address, SimDatagrams] = {}
        self._ids = itertools.count(1)
        self._ports = itertools.count(EPHEMERAL_PORT_FIRST)

    def bind(self, loop: "SimLoop") -> None:
        self._loop = loop
        self.links.bind(loop)

    @property
    def loop(self) -> "SimLoop":
        assert self._loop is not None
        return self._loop

    def is_framed(self, link: tuple[str, str]) -> bool:
        """Return True if connections on this link have frames of Kafka's protocol."""
        return self.framed and HOSTILE not in link and not self.unframed_hosts.issuperset(link)

    # ---- listening and connecting -----------------------------------------------------------------------------------

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], hosts: list[str], port: int) -> SimServer:
        """Start a listener. All interfaces of a simulated host are its host name, also its loopback."""
        port = port or next(self._ports)
        hosts = [self._own_name(host) for host in hosts]
        server = SimServer(self, factory, copy_context(), [(host, port) for host in hosts])
        for host in hosts:
            if (host, port) in self._listeners:
                raise OSError(98, f"address already in use: {host}:{port}")
            self._listeners[host, port] = server
        return server

    def _own_name(self, host: str) -> str:
        if host not in (*LOOPBACK, *ANY_HOST):
            return host
        current = self._current_host()
        return "" if current == CLIENTS else current

    @staticmethod
    def _current_host() -> str:
        from odradek.simulation.environment.loop import NODE

        return host_of(NODE.get())

    def unlisten(self, server: SimServer) -> None:
        self._listeners = {address: listener for address, listener in self._listeners.items() if listener is not server}

    def _listener(self, host: str, port: int) -> SimServer | None:
        return self._listeners.get((host, port)) or self._listeners.get(("", port))

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        loop, links = self.loop, self.links
        host_name, began_s = self._current_host(), loop.time()
        link = (host_name, self._own_name(host))
        arrival = loop.create_future()
        loop.call_later(self.latency.sample(self.rng) + links.delay(*link), _complete, arrival)
        await arrival
        if not (links.is_open(*link) and links.is_open(*link[::-1])):
            await links.opened(*link, CONNECT_SECONDS)
        server = self._listener(link[1], port)
        if server is None or loop.time() < self.blocked_until:
            raise ConnectionRefusedError(111, f"connection refused: {host}:{port}")
        connection = next(self._ids)
        client_address = ("127.0.0.1" if host_name == CLIENTS else host_name, next(self._ports))
        server_address = (host, port)
        request_pipe = Pipe(self, connection, link, began_s=began_s, is_request=True)
        response_pipe = Pipe(self, connection, link[::-1], began_s=began_s, is_request=False)
        protocol = factory()
        client = SimTransport(
            loop, protocol, request_pipe, response_pipe, FakeSocket(client_address, server_address), copy_context()
        )
        server_context = server.context.copy()
        accepted = SimTransport(
            loop,
            server_context.run(server.factory),
            response_pipe,
            request_pipe,
            FakeSocket(server_address, client_address),
            server_context,
        )
        self._connections[connection] = (client, accepted)
        loop.trace.add(loop.steps, loop.time(), "connect", connection, host_name, f"{host}:{port}")
        loop.call_soon(accepted.start, context=server_context)
        client.start()
        return client, protocol

    def forget(self, connection: int) -> None:
        self._connections.pop(connection, None)

    # ---- datagrams --------------------------------------------------------------------------------------------------

    def open_datagrams(
        self, protocol: asyncio.DatagramProtocol, local: Address | None, peer: Address | None
    ) -> SimDatagrams:
        host = self._current_host()
        address = (host, (local[1] if local else 0) or next(self._ports))
        if address in self._sockets:
            raise OSError(98, f"address already in use: {address[0]}:{address[1]}")
        endpoint = self._sockets[address] = SimDatagrams(self, protocol, address, peer, copy_context())
        return endpoint

    def unbind(self, address: Address) -> None:
        self._sockets.pop(address, None)

    def send_datagram(self, source: SimDatagrams, data: bytes, target: Address) -> None:
        loop, rng = self.loop, self.rng
        link = (source.address[0], target[0])
        if not self.links.passes_datagrams(*link) or rng.random() < LOSS_PROBABILITY:
            loop.trace.add(loop.steps, loop.time(), "datagram-lost", *link, len(data))
            return
        for _ in range(2 if rng.random() < DOUBLE_PROBABILITY else 1):
            delay = self.latency.sample(rng) + self.links.delay(*link)
            loop.call_later(
                delay, self._datagram_arrives, data, source.address, target, context=loop.context_of("network")
            )

    def _datagram_arrives(self, data: bytes, source: Address, target: Address) -> None:
        receiver = self._sockets.get(target)
        if receiver is not None and self.links.passes_datagrams(source[0], target[0]):
            self.loop.trace.add(self.loop.steps, self.loop.time(), "datagram", source[0], target[0], len(data))
            self.loop.call_soon(receiver.receive, data, source, context=receiver.context)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def reset_all(self, *, refuse_seconds: float = 0.0) -> int:
        """Reset all connections, and refuse new ones for `refuse_seconds`. Return the number of connections."""
        self.blocked_until = max(self.blocked_until, self.loop.time() + refuse_seconds)
        pairs = list(self._connections.values())
        for client, server in pairs:
            self._reset(client, server)
        return len(pairs)

    def reset_one(self) -> int:
        """Reset one random connection."""
        if not self._connections:
            return 0
        client, server = self._connections[self.rng.choice(list(self._connections))]
        self._reset(client, server)
        return 1

    def reset_between(self, host: str, other_host: str) -> None:
        """Reset all connections between two hosts."""
        for client, server in list(self._connections.values()):
            if client.out.link in {(host, other_host), (other_host, host)}:
                self._reset(client, server)

    def detach_node(self, node: str, *, silently: bool = False) -> None:
        """Detach an ended process from the network.

        Its peers receive a reset, or nothing with `silently` (no power).
        """
        from odradek.simulation.environment.loop import NODE

        for server in {id(listener): listener for listener in self._listeners.values()}.values():
            if server.context.get(NODE) == node:
                self.unlisten(server)
        for socket in list(self._sockets.values()):
            if socket.context.get(NODE) == node:
                socket.detach()
        for client, accepted in list(self._connections.values()):
            for endpoint, peer in ((client, accepted), (accepted, client)):
                if endpoint.context.get(NODE) != node:
                    continue
                endpoint.detach()
                if silently:
                    endpoint.out.break_off(lose=True)
                    peer.out.half_open = True
                else:
                    self.loop.call_later(
                        self.latency.sample(self.rng), self._deliver_reset, endpoint.out, peer, context=peer.context
                    )

    def _deliver_reset(self, pipe: Pipe, peer: SimTransport) -> None:
        """Deliver the reset of an ended process to its peer, unless the link is partitioned."""
        if not self.links.is_open(*pipe.link):
            peer.out.half_open = True
            return
        peer.fail(ConnectionResetError(104, "reset"))

    def _reset(self, *transports: SimTransport) -> None:
        for transport in transports:
            # Data in transit is lost with the connection. A late request is a fault of its own (hold_request).
            transport.out.break_off(lose=True)
            delay = self.latency.sample(self.rng)
            self.loop.call_later(delay, transport.fail, ConnectionResetError(104, "reset"), context=transport.context)

    def frame_fault(self, pipe: Pipe, frame: bytes) -> FrameFault | None:
        """Return the fault for this frame and remove it from the list, or None."""
        if not self.faults:
            return None
        api_key = pipe.api_key_of(frame)
        for fault in self.faults:
            if fault.fits(pipe, api_key):
                self.faults.remove(fault)
                fault.injected = True
                self.loop.trace.add(self.loop.steps, self.loop.time(), "frame-fault", fault.kind, api_key)
                if self.on_fault is not None:
                    self.on_fault(fault, api_key, frame)
                return fault
        return None

    def apply_fault(self, pipe: Pipe, fault: FrameFault, frame: bytes) -> bytes:
        """Apply the fault. Return the part of the frame that is still delivered on this connection."""
        _, server = self._connections[pipe.connection]
        part = b""
        if fault.kind.startswith("tear"):
            part = frame[: self.rng.randrange(1, len(frame))]
        elif fault.kind in {"hold_request", "replay_request"}:
            part = frame if fault.kind == "replay_request" else b""
            host, port = server.get_extra_info("sockname")
            sender = server.get_extra_info("peername")[0]
            self.loop.call_later(
                fault.delay,
                self._deliver_late,
                frame,
                sender,
                host,
                port,
                context=self.loop.context_of("ghost"),
            )
        return part

    def reset_connection(self, connection: int, not_before: float) -> None:
        """Reset both ends at `not_before`, after the data in transit has arrived."""
        pair = self._connections.get(connection)
        if pair is not None:
            self.loop.call_at(not_before + 2e-6, self._reset, *pair, context=self.loop.context_of("network"))

    def _deliver_late(self, frame: bytes, sender: str, host: str, port: int) -> None:
        self.loop.create_task(
            self._send_ghost(frame, sender, host, port), name="late-frame", context=self.loop.context_of("ghost")
        )

    async def _send_ghost(self, frame: bytes, sender: str, host: str, port: int) -> None:
        try:
            transport, _ = await self.connect(asyncio.Protocol, host, port)
            if self.log_in is not None:
                await self.log_in(transport, sender, (host, port), frame)
        except ConnectionError:
            return  # the node is down, so the frame is lost
        if self.on_late_delivery is not None:
            self.on_late_delivery(frame)
        transport.write(frame)
        self.loop.call_later(1.0, transport.close)

    def describe(self) -> dict[str, Any]:
        return {
            "connections": len(self._connections),
            "listeners": [f"{host}:{port}" for host, port in self._listeners],
        }


def _complete(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
