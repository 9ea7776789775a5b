"""Connections to the other nodes of the cluster: one for each node and purpose, made when it is first needed.

A connection answers in the order of its requests, so what may wait long (fetches, passed on requests) never shares one with
what must not (votes, heartbeats). Nothing is tried again in here: a request that was lost fails, and who asked decides.
"""

import re
from asyncio import (
    AbstractEventLoop,
    BaseTransport,
    BufferedProtocol,
    Future,
    TimerHandle,
    Transport,
    get_running_loop,
    timeout,
)
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

import structlog

from odradek.broker.requests.listener import BROKER
from odradek.broker.requests.session import Session
from odradek.protocol.client import ClientConnection
from odradek.protocol.errors import Malformed
from odradek.protocol.schema import Message
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Tasks

CONNECT_TIMEOUT_S: Final = 2.0
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest answer of another node; memory is taken as it arrives, not as it is announced."""
NEVER_MS: Final = -(2**62)
"""When something last came from a node that was never heard of, or refused by one that never did."""
_logger = structlog.get_logger("broker.peers")


class Channel(Enum):
    """What a connection is for."""

    RAFT = "raft"
    RAFT_FETCH = "raft-fetch"
    HEARTBEAT = "heartbeat"
    CONTROLLER = "controller"
    ISR = "isr"
    REPLICA_FETCH = "replica-fetch"
    MARKERS = "markers"
    VERIFICATION = "verification"
    PROBE = "probe"

    __hash__ = object.__hash__  # members are one of a kind, and Enum's own hash is Python


TO_CONTROLLERS: Final = (Channel.RAFT, Channel.RAFT_FETCH, Channel.HEARTBEAT, Channel.CONTROLLER, Channel.ISR)
"""Those that end at a node that votes."""


Address = tuple[str, int]
AddressOf = Callable[[int, Channel], Address | None]
"""Where a node listens for a purpose; None where it is not known."""
LostListener = Callable[[int, bool], None]


class Peers:
    """All calls belong on the event loop."""

    def __init__(self, node_id: int, address_of: AddressOf, clock: Clock, tasks: Tasks) -> None:
        self._address_of = address_of
        self._clock = clock
        self._tasks = tasks
        self._name = f"broker-{node_id}"
        self._links: dict[tuple[int, Channel], _Link] = {}
        self._heard: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self._on_lost: list[LostListener] = []
        self._closed = False

    def request(
        self, node_id: int, channel: Channel, request: Message, version: int, *, timeout_ms: int
    ) -> "Future[Any]":
        """The answer of `node_id`. Raises (by the future) OSError: nothing is known about what was done.

        TimeoutError ends the connection, since the answers behind the missing one would wait for it.
        """
        loop = get_running_loop()
        future: Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(ConnectionError("the node stops"))
            return future
        link = self._links.get((node_id, channel))
        if link is None or link.ended:
            address = self._address_of(node_id, channel)
            if address is None:
                future.set_exception(ConnectionError(f"no address is known for node {node_id}"))
                return future
            link = _Link(self, loop, node_id, channel, address)
            self._links[node_id, channel] = link
            self._tasks.spawn(link.connect(), f"connect to {node_id} for {channel.value}")
        link.request(request, version, future, timeout_ms)
        return future

    def heard(self, node_id: int) -> None:
        """Something has come from `node_id` just now."""
        self._heard[node_id] = self._clock.monotonic_ms()

    def heard_ms(self, node_id: int) -> int:
        """Monotonic milliseconds when something last came from `node_id`; NEVER_MS when nothing ever has."""
        return self._heard.get(node_id, NEVER_MS)

    def refused_ms(self, node_id: int) -> int:
        """Monotonic milliseconds when the host of `node_id` said last that nobody listens there; NEVER_MS when it never has."""
        return self._refused.get(node_id, NEVER_MS)

    def on_lost(self, callback: LostListener) -> None:
        """`callback(node id, refused)` whenever a connection to that node was reset or ended by it, or could not be made.

        `refused`: the host has answered that nobody listens there, which a process that runs does not let happen.
        """
        self._on_lost.append(callback)

    def lost(self, node_id: int, *, refused: bool) -> None:
        """Called by a connection that did not end by our will."""
        if refused:
            self._refused[node_id] = self._clock.monotonic_ms()
        if not self._closed:
            for callback in tuple(self._on_lost):
                callback(node_id, refused)

    def close(self) -> None:
        """End every connection; whoever waits for an answer gets ConnectionError."""
        self._closed = True
        for link in self._links.values():
            link.end(ConnectionError("the node stops"), flush=True)

    def client_id(self, channel: Channel) -> str:
        """How this node calls itself in the headers of its requests."""
        return f"{self._name}-{channel.value}"


_NAME: Final = re.compile(rf"broker-\d+-({'|'.join(channel.value for channel in Channel)})")


def is_broker(session: Session, client_id: str | None) -> bool:
    """Return whether the session's listener is for brokers and `client_id` is one that brokers use for their connections."""
    return BROKER in session.listener.roles and client_id is not None and _NAME.fullmatch(client_id) is not None


class _Asked:
    """One request on its way."""

    __slots__ = ("future", "request", "timer", "version")

    def __init__(self, request: Message, version: int, future: "Future[Any]") -> None:
        self.request = request
        self.version = version
        self.future = future
        self.timer: TimerHandle | None = None

    def finish(self, answer: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():  # nobody waits any more
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class _Link(BufferedProtocol):
    """One connection. Requests made before it stands are sent as soon as it does."""

    def __init__(self, peers: Peers, loop: AbstractEventLoop, node_id: int, channel: Channel, address: Address) -> None:
        self.ended = False
        self._peers = peers
        self._loop = loop
        self._node_id = node_id
        self._channel = channel
        self._address = address
        self._client_id = peers.client_id(channel)
        self._core = ClientConnection(response_bytes_max=RESPONSE_BYTES_MAX)
        self._transport: Transport | None = None
        self._unsent: deque[_Asked] = deque()
        self._sent: deque[_Asked] = deque()

    async def connect(self) -> None:
        host, port = self._address
        try:
            async with timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: self, host, port)
        except OSError as error:  # TimeoutError is one
            refused = isinstance(error, ConnectionRefusedError)
            self._lost(
                ConnectionError(f"node {self._node_id} at {host}:{port} cannot be reached: {error}"), refused=refused
            )

    def request(self, request: Message, version: int, future: "Future[Any]", timeout_ms: int) -> None:
        asked = _Asked(request, version, future)
        asked.timer = self._loop.call_later(timeout_ms / 1_000, self._timed_out, asked)
        if self._transport is None:
            self._unsent.append(asked)
        else:
            self._send(asked)

    def end(self, reason: OSError, *, flush: bool = False) -> None:
        """The connection is of no use any more. With `flush` what has been asked still goes out (a good-bye)."""
        if self.ended:
            return
        self.ended = True
        if self._transport is not None and flush:
            self._transport.close()
        elif self._transport is not None:
            self._transport.abort()
        for waiting in (self._sent, self._unsent):
            while waiting:
                waiting.popleft().finish(reason)

    # -- transport events

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if self.ended:
            self._transport.abort()
            return
        while self._unsent:
            self._send(self._unsent.popleft())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._peers.heard(self._node_id)
        try:
            self._core.buffer_updated(nbytes)
            while not self.ended and (found := self._core.next_response()) is not None:
                self._sent.popleft().finish(found[1])
        except Malformed as error:
            _logger.warning(
                "an answer cannot be read", node=self._node_id, channel=self._channel.value, reason=str(error)
            )
            self.end(ConnectionError(f"node {self._node_id} answers what cannot be read: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(ConnectionError(f"the connection to node {self._node_id} was lost: {exc or 'closed by it'}"))

    # -- ends

    def _send(self, asked: _Asked) -> None:
        assert self._transport is not None
        _, data = self._core.send(asked.request, asked.version, self._client_id)
        self._sent.append(asked)
        self._transport.write(data)

    def _timed_out(self, asked: _Asked) -> None:
        """Also when whoever asked has given up by now: what does not answer may be a machine that is gone without a word."""
        asked.finish(TimeoutError(f"node {self._node_id} did not answer in time"))
        self.end(ConnectionError(f"node {self._node_id} did not answer an earlier request in time"))

    def _lost(self, reason: OSError, *, refused: bool = False) -> None:
        if not self.ended:
            self.end(reason)
            self._peers.lost(self._node_id, refused=refused)
