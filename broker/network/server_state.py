"""State that all connections of a node share, and the admission of new connections."""

from asyncio import AbstractEventLoop, get_running_loop
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.network.held_requests import HeldRequests
from odradek.broker.network.limits import ConnectionLimits, LogLimit
from odradek.broker.network.waiting_requests import WaitingRequests
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session, origin_of
from odradek.protocol.framing import ReceiveBuffer
from odradek.runtime.tasks import Tasks

_logger = structlog.get_logger(__name__)
EVICTION_IDLE_S: Final = 10.0
"""Seconds without a request after which a connection is closed in favor of a new one, at the limit of open files.

Clients send requests more often while they work: heartbeats of consumers each 3 s, fetches each 0.5 s.
"""
EXAMINED_MAX: Final = 16
"""Connections that are examined per new connection at that limit. The next one examines the following ones."""
ITERATION_US_MAX: Final = 20_000
"""Microseconds of work for clients after which connections take no further request in an iteration of the event loop.

Otherwise hundreds of clients could together hold the loop for seconds, and the node would be taken as failed.
"""


class Evictable(Protocol):
    """A connection that can be closed in favor of a new one, and that takes its requests in turns."""

    def close_if_idle(self, idle_s: float, *, in_flight: bool = False) -> bool:
        """Close the connection if it is idle, and return True. `Connection` defines idle."""

    def begin_turn(self) -> None:
        """Take requests after a pause."""


C = TypeVar("C", bound=Evictable)


@dataclass(slots=True)
class ServerState(Generic[C]):
    """State of the network of one node. Its connections are of class `C`."""

    config: Config
    budget: ByteBudget
    limits: ConnectionLimits
    tasks: Tasks
    dispatcher: Dispatcher | None = None
    """The dispatcher of the node's current phase; None until the node serves requests."""
    ready: bool = False
    """True once the broker is registered. Until then only early requests (`Api.early`) are served."""
    receive_buffer: ReceiveBuffer = field(default_factory=ReceiveBuffer)
    """Receive buffer of all connections of the node."""
    connections: dict[int, C] = field(default_factory=dict)
    """The connections that are admitted and not closed, by their id."""
    early: dict[C, None] = field(default_factory=dict)
    """The connections that were accepted before the node served requests. They are not read."""
    waiting: dict[C, Call] = field(default_factory=dict)
    """The connections whose next request waits until the broker is registered."""
    waiting_requests: WaitingRequests = field(default_factory=WaitingRequests)
    """The requests whose handlers wait, although no wait is intended."""
    held_requests: HeldRequests = field(init=False)
    """The large requests whose wait is intended (`Api.long_poll`)."""
    _by_address: dict[str, dict[int, C]] = field(default_factory=dict)
    """The same connections by the address of their client (`origin_of`)."""
    _next_connection_id: int = 1
    failed_handshakes: Counter[str] = field(default_factory=Counter)
    """Number of failed TLS handshakes by listener, for the metrics."""
    is_busy: bool = False
    """True if the requests of this iteration of the event loop have taken ITERATION_US_MAX, or if connections wait for
    the next one. Connections then take requests in the order of `defer`."""
    _work_us: int = 0
    """Work on requests since the begin of the iteration, in microseconds."""
    _iteration_planned: bool = False
    _deferred: deque[C] = field(default_factory=deque)
    """The connections that wait for a later iteration, in their order."""
    _refused_log_limit: LogLimit = field(default_factory=LogLimit)
    _expired_log_limit: LogLimit = field(default_factory=LogLimit)
    _limit_log_limit: LogLimit = field(default_factory=LogLimit)
    _refusing: str | None = None
    """Property of the limit that refused the last connection and was logged; None after a connection was admitted."""

    def __post_init__(self) -> None:
        self.held_requests = HeldRequests(self.budget)

    def note_waiting(self, call: Call, loop: AbstractEventLoop, *, in_order: bool) -> None:
        """Note that a stage of `call` waits from now on. `in_order`: it is stage one."""
        if call.api.long_poll:
            if not in_order:
                self.held_requests.add(call, loop)
        else:
            self.waiting_requests.add(call, loop)

    def note_complete(self, call: Call) -> None:
        """Note that a stage of `call` is complete."""
        if call.api.long_poll:
            self.held_requests.remove(call)
        else:
            self.waiting_requests.remove(call)

    def admit(self, connection: C, listener: Listener, host: str, port: int) -> Session | None:
        """Count `connection` and return its session. Return None if it exceeds a limit of connections."""
        over = self.limits.admit(host, protected=listener.protected, evict=partial(self._evict, host))
        if over is not None:
            if self._refusing != over:
                self._refusing = over
                event, now_s = "connection refused: limit exceeded", get_running_loop().time()
                _log(self._limit_log_limit, now_s, _logger.warning, event, limit=over, client=host)
            return None
        self._refusing = None
        session = Session(self._next_connection_id, listener, host, port)
        self._next_connection_id += 1
        self.connections[session.connection_id] = connection
        self._by_address.setdefault(origin_of(host), {})[session.connection_id] = connection
        return session

    def _evict(self, host: str) -> bool:
        """Close one connection in favor of a new one from the address `host`.

        It is an idle connection; or one of the address that has most connections, if `host` then still has fewer. Of
        these, one without a request in flight is preferred.
        """
        if _evict_from(self.connections, EVICTION_IDLE_S):
            return True
        largest = max(self._by_address.values(), key=len, default={})
        own = self._by_address.get(origin_of(host), {})
        if len(largest) <= len(own) + 1:
            return False
        return _evict_from(largest, 0.0) or _evict_from(largest, 0.0, in_flight=True)

    def note_work(self, work_us: int) -> None:
        """Count the duration of requests that one connection took in a row."""
        if work_us > 0:
            self._plan_iteration()
        self._work_us += work_us
        if self._work_us >= ITERATION_US_MAX:
            self.is_busy = True

    def defer(self, connection: C) -> None:
        """Let `connection` take its next request in a later iteration of the event loop, after those before it."""
        self._deferred.append(connection)
        self._plan_iteration()

    def _plan_iteration(self) -> None:
        if not self._iteration_planned:
            self._iteration_planned = True
            get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        """Continue connections in their order until their requests have taken ITERATION_US_MAX."""
        self._iteration_planned = False
        self._work_us = 0
        for _ in range(len(self._deferred)):
            self._deferred.popleft().begin_turn()
            if self._work_us >= ITERATION_US_MAX:
                break
        self.is_busy = self._work_us >= ITERATION_US_MAX or bool(self._deferred)
        if self._deferred:
            self._plan_iteration()

    @property
    def may_wait(self) -> bool:
        """True if another connection can wait for the start of the node: it needs a descriptor meanwhile."""
        return len(self.early) < self.limits.connections_max()

    def leave(self, session: Session) -> None:
        """Remove the connection of `session` from the counts."""
        self.connections.pop(session.connection_id, None)
        origin = origin_of(session.client_host)
        same_address = self._by_address[origin]
        del same_address[session.connection_id]
        if not same_address:
            del self._by_address[origin]
        self.limits.leave(session.client_host)

    def log_refused(self, event: str, session: Session, reason: str, now_s: float) -> None:
        """Log that a request of a connection is refused or closes it, unless LOG_LINES_PER_SECOND is exceeded."""
        client, listener = f"{session.client_host}:{session.client_port}", session.listener.name
        _log(self._refused_log_limit, now_s, _logger.warning, event, client=client, listener=listener, reason=reason)

    def log_expired(self, session: Session, now_s: float) -> None:
        """Log that a connection is closed after a deadline, unless LOG_LINES_PER_SECOND is exceeded."""
        event = "connection closed: deadline passed"
        _log(self._expired_log_limit, now_s, _logger.info, event, client=session.client_host)


def _log(lines: LogLimit, now_s: float, write: Callable[..., object], event: str, **fields: str) -> None:
    """Log an event unless LOG_LINES_PER_SECOND is exceeded. The next line has the number of suppressed ones."""
    suppressed = lines.admit(now_s)
    if suppressed is not None:
        write(event, **fields, **({"suppressed": suppressed} if suppressed else {}))


def _evict_from(connections: dict[int, C], idle_s: float, *, in_flight: bool = False) -> bool:
    """Close one of `connections` that is idle for `idle_s`. Examine those first that were examined least recently.

    With `in_flight`, it may have requests in flight.
    """
    for _ in range(min(EXAMINED_MAX, len(connections))):
        connection_id, connection = next(iter(connections.items()))
        del connections[connection_id]
        connections[connection_id] = connection
        if connection.close_if_idle(idle_s, in_flight=in_flight):
            return True
    return False
