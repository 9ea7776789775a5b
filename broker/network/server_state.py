"""State that all connections of a node share, and the admission of new connections."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.network.limits import ConnectionLimits, LogLimit
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session
from odradek.runtime.tasks import Tasks

C = TypeVar("C")
_logger = structlog.get_logger(__name__)


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
    connections: dict[int, C] = field(default_factory=dict)
    """The connections that are admitted and not closed, by their id."""
    early: dict[C, None] = field(default_factory=dict)
    """The connections that were accepted before the node served requests. They are not read."""
    waiting: dict[C, Call] = field(default_factory=dict)
    """The connections whose next request waits until the broker is registered."""
    _next_connection_id: int = 1
    _closed_log_limit: LogLimit = field(default_factory=LogLimit)
    _refusing: str | None = None
    """Property of the limit that refused the last connection and was logged; None after a connection was admitted."""

    def admit(self, connection: C, listener: Listener, host: str, port: int) -> Session | None:
        """Count `connection` and return its session. Return None if it exceeds a limit of connections."""
        over = self.limits.admit(host, protected=listener.protected)
        if over is not None:
            if self._refusing != over:
                self._refusing = over
                _logger.warning("connection refused: limit exceeded", limit=over, client=host)
            return None
        self._refusing = None
        session = Session(self._next_connection_id, listener, host, port)
        self._next_connection_id += 1
        self.connections[session.connection_id] = connection
        return session

    def leave(self, session: Session) -> None:
        """Remove the connection of `session` from the counts."""
        self.connections.pop(session.connection_id, None)
        self.limits.leave(session.client_host)

    def log_closed(self, event: str, session: Session, reason: str, now_s: float) -> None:
        """Log that a connection is closed because of its request, unless LOG_LINES_PER_SECOND is exceeded."""
        suppressed = self._closed_log_limit.admit(now_s)
        if suppressed is not None:
            client = f"{session.client_host}:{session.client_port}"
            more = {"suppressed": suppressed} if suppressed else {}
            _logger.warning(event, client=client, listener=session.listener.name, reason=reason, **more)
