"""Members of the cluster as the failure detector keeps them, its configuration, and its output."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.messages import GossipEntry
from odradek.cluster.membership.transitions import Event, State
from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from odradek.cluster.membership.messages import Message

UNREGISTERED: Final = -1
"""The broker epoch of a voter that has not registered as a broker."""
SEQUENCES_REMEMBERED: Final = 64
"""Maximum pings per member whose acknowledgment still counts, however late it is."""


@frozen_dataclass(frozen=True, slots=True)
class MembershipConfig:
    """Intervals and time-outs in milliseconds of local time (`odradek.cluster.membership.local_time`)."""

    probe_interval_ms: int = 100
    probe_timeout_ms: int = 150
    suspicion_timeout_ms: int = 800
    dead_probe_interval_ms: int = 1_000
    helpers: int = 2
    """Maximum nodes that receive a ping request for a member that does not acknowledge."""


@frozen_dataclass(frozen=True, slots=True)
class MemberSpec:
    """A node of the cluster: a registered broker, or a voter that is not registered.

    Such a voter has the broker epoch UNREGISTERED and the incarnation UNKNOWN_INCARNATION.
    """

    node_id: int
    broker_epoch: int
    incarnation: int


@frozen_dataclass(frozen=True, slots=True)
class MemberView:
    """The state of a member, for operators and tools. `since_ms`: monotonic time at which the state began."""

    node_id: int
    broker_epoch: int
    counter: int
    state: State
    since_ms: int


@frozen_dataclass(frozen=True, slots=True)
class Change:
    """A change of a member's state on this node. `silent_ms`: time since the first unacknowledged ping, or 0."""

    node_id: int
    broker_epoch: int
    counter: int
    before: State
    state: State
    event: Event
    silent_ms: int

    @property
    def is_failure_declaration(self) -> bool:
        """True if this node declares the failure of (node id, broker epoch)."""
        return self.state is State.FAILED


@frozen_dataclass(frozen=True, slots=True)
class Ready:
    """Output for the driver: messages to send, node ids to probe by TCP, and changes to publish."""

    messages: tuple[Message, ...]
    tcp_probes: tuple[int, ...]
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Counters:
    """Events since the start of the process."""

    probes: int = 0
    indirect_probes: int = 0
    tcp_probes: int = 0
    suspicions: int = 0
    refutations: int = 0
    """Refutations by this node of suspicions of itself."""
    failure_declarations: int = 0
    vetoes: int = 0
    """Failure declarations that TCP evidence prevented."""
    late_ticks: int = 0
    standstills: int = 0


@dataclass(slots=True)
class Member:
    """One other node. `*_at` are deadlines in local time, None: not set; `*_ms` are monotonic times."""

    node_id: int
    broker_epoch: int
    incarnation: int
    since_ms: int
    state: State = State.ALIVE
    counter: int = 0
    sequences: deque[int] = field(default_factory=lambda: deque(maxlen=SEQUENCES_REMEMBERED))
    """The sequence numbers of its latest pings and ping requests."""
    silent_since: int | None = None
    """Local time of the first ping since the last acknowledgment."""
    indirect_probe_at: int | None = None
    suspect_at: int | None = None
    dead_at: int | None = None
    next_probe_at: int = 0
    """Local time of the next ping while the member is FAILED."""
    next_tcp_probe_at: int = 0
    tcp_probe_pending: bool = False
    suspected_ms: int = 0
    refused_ms: int | None = None
    """The last time at which its host refused a connection."""
    is_confirmed: bool = False
    """True if its process has certainly ended: its port was closed, or another process acknowledged.

    Later TCP evidence is then about another process.
    """

    def clear_evidence(self) -> None:
        """Forget all outstanding deadlines."""
        self.silent_since = None
        self.indirect_probe_at = None
        self.suspect_at = None
        self.dead_at = None
        self.refused_ms = None

    def not_listening_at(self, probe_timeout_ms: int) -> int | None:
        """Return the deadline at which a node that refuses connections has also not acknowledged a ping."""
        if self.refused_ms is None or self.silent_since is None:
            return None
        return self.silent_since + probe_timeout_ms

    def deadlines(self, probe_timeout_ms: int) -> list[int]:
        """Return all deadlines that are set."""
        found = (self.indirect_probe_at, self.suspect_at, self.dead_at, self.not_listening_at(probe_timeout_ms))
        return [deadline for deadline in found if deadline is not None]

    @property
    def gossip_entry(self) -> GossipEntry:
        return GossipEntry(self.node_id, self.incarnation, self.counter, self.state)

    @property
    def view(self) -> MemberView:
        return MemberView(self.node_id, self.broker_epoch, self.counter, self.state, self.since_ms)
