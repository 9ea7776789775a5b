"""What all connections of a node have in common."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.broker.config.properties import Config
from odradek.broker.network.limits import ByteBudget, ConnectionLimits, LogLimit
from odradek.runtime.tasks import Tasks

if TYPE_CHECKING:
    from odradek.broker.dispatch.dispatcher import Call, Dispatcher
    from odradek.broker.network.connection import Connection


@dataclass(slots=True)
class Shared:
    config: Config
    budget: ByteBudget
    limits: ConnectionLimits
    tasks: Tasks
    dispatcher: "Dispatcher" = field(init=False)
    """Set before anything is served."""
    connections: dict[int, "Connection"] = field(default_factory=dict)
    early: dict["Connection", None] = field(default_factory=dict)
    """Connections made before the node serves anything; they wait, unread."""
    serving: bool = False
    ready: bool = False
    """Until then only what is marked as early in the API table is served."""
    waiting: "dict[Connection, Call]" = field(default_factory=dict)
    """Connections whose next request waits until the node is ready."""
    next_connection_id: int = 1
    complaints: LogLimit = field(default_factory=LogLimit)
    refusing: str | None = None
    """The connection limit that has been logged and is still being hit."""
