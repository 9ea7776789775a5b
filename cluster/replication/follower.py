"""A partition that this broker follows: a machine as a table, and the arithmetic of truncation. Pure.

A follower fetches from its own log end with the epoch of its last batch. The leader answers with what comes next, or with where
the two logs part (KIP-595); then the follower cuts its log and asks again. An offset that the leader does not have is
looked up first (*locating*). Only an answer to the question that was asked last counts: `Following.asked_offset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, TransitionTable

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Final = -1


class State(Enum):
    """What is being done about the partition."""

    FETCHING = "asked for, or to be asked for in the next fetch"
    TRUNCATING = "its log is being cut; not asked for"
    LOCATING = "the leader is asked where its log begins and ends"
    PAUSING = "the leader could not answer; asked for again after a while"
    WAITING = "the leader knows a newer epoch: the metadata is on its way here"
    BROKEN = "its disk has refused: not asked for until a restart"

    __hash__ = object.__hash__  # members are one of a kind, and Enum's own hash is Python


class Event(Enum):
    """What happens to it."""

    DATA = auto()
    """Records (or none) have come and are in the log."""
    DIVERGED = auto()
    OUT_OF_RANGE = auto()
    LOCATED = auto()
    """It is known where to go on; the log has to be cut there, or fits already."""
    TRUNCATED = auto()
    FENCED = auto()
    NOT_NOW = auto()
    """An error that may pass, a damaged batch, or no answer at all."""
    PAUSED = auto()
    """The pause is over."""
    DISK_FAILED = auto()

    __hash__ = object.__hash__  # members are one of a kind, and Enum's own hash is Python


F, T, L, P, W, B = State.FETCHING, State.TRUNCATING, State.LOCATING, State.PAUSING, State.WAITING, State.BROKEN
# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, State]] = TransitionTable.of_rows(
    "followed partitions",
    State,
    Event,
    {
        #                    F    T    L    P    W    B
        Event.DATA:         (F,   BUG, BUG, BUG, BUG, BUG),
        Event.DIVERGED:     (T,   BUG, BUG, BUG, BUG, BUG),
        Event.OUT_OF_RANGE: (L,   BUG, BUG, BUG, BUG, BUG),
        Event.LOCATED:      (BUG, BUG, T,   BUG, BUG, BUG),
        Event.TRUNCATED:    (BUG, F,   BUG, BUG, BUG, BUG),
        Event.FENCED:       (W,   BUG, W,   BUG, BUG, BUG),
        Event.NOT_NOW:      (P,   BUG, P,   BUG, BUG, BUG),
        Event.PAUSED:       (BUG, BUG, BUG, F,   BUG, BUG),
        Event.DISK_FAILED:  (B,   B,   B,   B,   B,   B),
    },
)
# fmt: on
"""A new leader or leader epoch makes a new `Following`, so no state has an event for that."""

ERROR_EVENTS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Event.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: Event.FENCED,
}
"""Of a partition's answer; every other error is NOT_NOW."""


def event_of(error: ErrorCode) -> Event:
    return ERROR_EVENTS.get(error, Event.NOT_NOW)


class Following:
    """One partition, one leader, one leader epoch."""

    __slots__ = ("asked_offset", "failures", "leader", "leader_epoch", "state")

    def __init__(self, leader: int, leader_epoch: int) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.state = State.FETCHING
        self.asked_offset = UNKNOWN
        """What the leader was asked for last, until the log or the leader makes that void."""
        self.failures = 0
        """Answers in a row that were none."""

    def step(self, event: Event) -> State:
        """Return the next state, after it is entered. Raise TransitionBug if `event` cannot occur in the current one."""
        new = TRANSITIONS.look_up(self.state, event)
        if event is Event.NOT_NOW:
            self.failures += 1
        elif event is Event.DATA:
            self.failures = 0
        if new is not State.FETCHING:
            self.asked_offset = UNKNOWN
        self.state = new
        return new


def pause_ms(failures: int, first_ms: int, longest_ms: int) -> int:
    """How long to wait after so many failures in a row: twice as long each time, up to replica.fetch.backoff.ms."""
    return min(first_ms << min(failures - 1, 20), longest_ms)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log has to end. Whether the logs agree then shows with the next fetch."""

    offset: int


def cut_for(leader_epoch: int, leader_end: int, end_of: Callable[[int], tuple[int, int]], log_end: int) -> Cut:
    """Where to cut after the answer "the largest epoch I have up to yours is `leader_epoch`, and it ends at `leader_end`".

    `end_of(epoch)` is (epoch, end) of the own log for the largest epoch that is not above the given one, (-1, -1) when it
    knows none. Where that is a smaller epoch than the leader's, the logs may part even earlier: its end comes first, and
    the next fetch asks again from there (KIP-279).
    """
    own_epoch, own_end = end_of(leader_epoch)
    if own_epoch == UNKNOWN:
        return Cut(min(leader_end, log_end))
    return Cut(min(own_end, leader_end, log_end))


class Remedy(Enum):
    """What to do about an offset that the leader does not have."""

    CUT = "cut the log at that offset"
    START_AT = "drop everything and begin at that offset"
    ASK_AGAIN = "the own log end is within the leader's log by now"


def remedy_for(log_end: int, leader_start: int, leader_end: int) -> tuple[Remedy, int]:
    """The own log ends at `log_end`, the leader's spans [`leader_start`, `leader_end`]."""
    if leader_end < log_end:
        return Remedy.CUT, leader_end  # only after an unclean election: the leader never had what is here
    if leader_start > log_end:
        return Remedy.START_AT, leader_start
    return Remedy.ASK_AGAIN, log_end
