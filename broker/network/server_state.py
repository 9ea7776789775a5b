"""State that all connections of a node share."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.network.limits import ConnectionLimits, LogLimit
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.runtime.tasks import Tasks

C = TypeVar("C")


@dataclass(slots=True)
class Shared(Generic[C]):
    """The state of a server whose connections are of class `C`."""

    config: Config
    budget: ByteBudget
    limits: ConnectionLimits
    tasks: Tasks
    dispatcher: Dispatcher | None = None
    """The dispatcher of the node's current phase; None until the node serves requests."""
    connections: dict[int, C] = field(default_factory=dict)
    """The connections that are served, by their id."""
    early: dict[C, None] = field(default_factory=dict)
    """Connections made before the node serves anything; they wait, unread."""
    ready: bool = False
    """True once the broker is registered. Until then only early requests (`Api.early`) are served."""
    waiting: dict[C, Call] = field(default_factory=dict)
    """Connections whose next request waits until the node is ready."""
    next_connection_id: int = 1
    complaints: LogLimit = field(default_factory=LogLimit)
    refusing: str | None = None
    """The connection limit that has been logged and is still being hit."""
