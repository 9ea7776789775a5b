"""What a node keeps of each other one, what is configured, and what comes out. Values and records only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.cluster.membership.messages import Rumour
from odradek.cluster.membership.transitions import Event, State

if TYPE_CHECKING:
    from odradek.cluster.membership.messages import Message

UNREGISTERED: Final = -1
"""The broker epoch of a voter that has not registered as a broker."""
SEQUENCES_REMEMBERED: Final = 64
"""Pings to one node whose answer still counts, late as it may be."""


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """Milliseconds. Every time-out is of the node's own time (`odradek.cluster.membership.own_time`)."""

    probe_interval_ms: int = 100
    probe_timeout_ms: int = 150
    suspicion_timeout_ms: int = 800
    dead_probe_interval_ms: int = 1_000
    helpers: int = 2
    """How many others are asked to ping a node that does not answer."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A node that belongs to the cluster: a registered broker, or a voter that has not registered (UNREGISTERED, UNKNOWN_LIFE)."""

    node_id: int
    broker_epoch: int
    life: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """For people and tools. `since_ms`: monotonic time at which the state began."""

    node_id: int
    broker_epoch: int
    counter: int
    state: State
    since_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """A node has passed from one state to another here. `silent_ms`: how long it has not answered; 0 when that does not matter."""

    node_id: int
    broker_epoch: int
    counter: int
    before: State
    state: State
    event: Event
    silent_ms: int

    @property
    def is_verdict(self) -> bool:
        """This node holds (node id, broker epoch) dead from now on."""
        return self.state is State.DEAD


@dataclass(frozen=True, slots=True)
class Ready:
    """What has to be done: send `messages`, ask `knocks` (node ids) for an answer by TCP, hear of `changes`."""

    messages: tuple[Message, ...]
    knocks: tuple[int, ...]
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Counters:
    """Since the start."""

    probes: int = 0
    indirect_probes: int = 0
    knocks: int = 0
    suspicions: int = 0
    refutations: int = 0
    """Of what others said of this node."""
    verdicts: int = 0
    vetoes: int = 0
    late_ticks: int = 0
    standstills: int = 0


@dataclass(slots=True)
class Member:
    """One other node. `*_at` are deadlines in own time, None: not set; `*_ms` are monotonic times."""

    node_id: int
    broker_epoch: int
    life: int
    since_ms: int
    state: State = State.ALIVE
    counter: int = 0
    asked: deque[int] = field(default_factory=lambda: deque(maxlen=SEQUENCES_REMEMBERED))
    silent_since: int | None = None
    """Own time of the first ping since the last answer."""
    ask_helpers_at: int | None = None
    suspect_at: int | None = None
    dead_at: int | None = None
    next_probe_at: int = 0
    """Of a dead node."""
    next_knock_at: int = 0
    knocking: bool = False
    suspected_ms: int = 0
    refused_ms: int | None = None
    is_over: bool = False
    """Dead because nobody listened any more, or because another process answers in its place: what is heard by TCP is that one."""

    def settle(self) -> None:
        """Nothing is open any more."""
        self.silent_since = self.ask_helpers_at = self.suspect_at = self.dead_at = self.refused_ms = None

    def gone_at(self, probe_timeout_ms: int) -> int | None:
        """When a node that refuses connections has been silent for long enough."""
        if self.refused_ms is None or self.silent_since is None:
            return None
        return self.silent_since + probe_timeout_ms

    def deadlines(self, probe_timeout_ms: int) -> list[int]:
        """All that are set."""
        found = (self.ask_helpers_at, self.suspect_at, self.dead_at, self.gone_at(probe_timeout_ms))
        return [deadline for deadline in found if deadline is not None]

    @property
    def rumour(self) -> Rumour:
        return Rumour(self.node_id, self.life, self.counter, self.state)

    @property
    def view(self) -> MemberView:
        return MemberView(self.node_id, self.broker_epoch, self.counter, self.state, self.since_ms)
