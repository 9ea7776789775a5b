"""The fetch state of a partition that this broker follows, and the offset to truncate to.

A follower fetches from its own log end offset, with the epoch of its last batch. The leader responds with the next
records, or with the point where the two logs diverge (KIP-595). The follower then truncates its log and fetches again.
If the leader does not have the offset, the follower requests the leader's log start and end offsets first. Only a
response to the latest fetch counts: `PartitionFetchState.fetch_offset`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import NO_LEADER_EPOCH, UNKNOWN_OFFSET
from odradek.runtime.machine import BUG, TransitionTable

if TYPE_CHECKING:
    from collections.abc import Callable


class State(Enum):
    """The current operation on the partition."""

    FETCHING = "in the pending fetch, or in the next one"
    TRUNCATING = "its log is being truncated; it is not fetched"
    LOCATING = "the leader's log start and end offsets are requested"
    PAUSING = "the leader has responded with an error; it is fetched again after a pause"
    WAITING = "the leader has a later epoch; the metadata has not arrived yet"
    BROKEN = "its disk has failed; it is not fetched before a restart"

    __hash__ = object.__hash__  # members are compared by identity, and Enum's own hash is Python code


class Event(Enum):
    """The result of an operation on the partition."""

    DATA = auto()
    """The log has the records of the response, or there were none."""
    DIVERGED = auto()
    """The logs diverge before the fetch offset."""
    OUT_OF_RANGE = auto()
    """The leader does not have the fetch offset."""
    LOCATED = auto()
    """The next fetch offset is known. The log is truncated to it, unless it ends there."""
    TRUNCATED = auto()
    FENCED = auto()
    RETRIABLE_ERROR = auto()
    """A retriable error, a corrupt batch, no response, or no descriptor for a truncation."""
    PAUSE_ENDED = auto()
    DISK_FAILED = auto()

    __hash__ = object.__hash__  # members are compared by identity, and Enum's own hash is Python code


F, T, L, P, W, B = State.FETCHING, State.TRUNCATING, State.LOCATING, State.PAUSING, State.WAITING, State.BROKEN
# fmt: off
TRANSITIONS: Final[TransitionTable[State, Event, State]] = TransitionTable.of_rows(
    "followed partitions",
    State,
    Event,
    {
        #                        F    T    L    P    W    B
        Event.DATA:            (F,   BUG, BUG, BUG, BUG, BUG),
        Event.DIVERGED:        (T,   BUG, BUG, BUG, BUG, BUG),
        Event.OUT_OF_RANGE:    (L,   BUG, BUG, BUG, BUG, BUG),
        Event.LOCATED:         (BUG, BUG, T,   BUG, BUG, BUG),
        Event.TRUNCATED:       (BUG, F,   BUG, BUG, BUG, BUG),
        Event.FENCED:          (W,   BUG, W,   BUG, BUG, BUG),
        Event.RETRIABLE_ERROR: (P,   P,   P,   BUG, BUG, BUG),
        Event.PAUSE_ENDED:     (BUG, BUG, BUG, F,   BUG, BUG),
        Event.DISK_FAILED:     (B,   B,   B,   B,   B,   B),
    },
)
# fmt: on
"""The next state. A new leader or leader epoch makes a new PartitionFetchState, so the table has no event for it."""

ERROR_EVENTS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Event.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: Event.FENCED,
}
"""The events of error codes in a partition's response. All other errors are RETRIABLE_ERROR."""


def event_of(error: ErrorCode) -> Event:
    return ERROR_EVENTS.get(error, Event.RETRIABLE_ERROR)


class PartitionFetchState:
    """The state of one partition, for one leader and leader epoch."""

    __slots__ = ("failures", "fetch_offset", "leader", "leader_epoch", "state")

    def __init__(self, leader: int, leader_epoch: int) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.state = State.FETCHING
        self.fetch_offset = UNKNOWN_OFFSET
        """The offset of the latest fetch. UNKNOWN_OFFSET: a response to it does not count any more."""
        self.failures = 0
        """Consecutive retriable errors."""

    def step(self, event: Event) -> State:
        """Return the next state, after it is entered.

        Raise TransitionBug if `event` cannot occur in the current one.
        """
        new = TRANSITIONS.look_up(self.state, event)
        if event is Event.RETRIABLE_ERROR:
            self.failures += 1
        elif event is Event.DATA:
            self.failures = 0
        if new is not State.FETCHING:
            self.fetch_offset = UNKNOWN_OFFSET
        self.state = new
        return new


def pause_ms(failures: int, first_ms: int, longest_ms: int) -> int:
    """Return the pause after consecutive failures. It doubles with each failure, up to replica.fetch.backoff.ms."""
    return min(first_ms << min(failures - 1, 20), longest_ms)


@frozen_dataclass(frozen=True, slots=True)
class Truncation:
    """The offset to truncate the log to. The next fetch shows whether the logs agree then."""

    offset: int


def truncation_for(
    leader_epoch: int, leader_end: int, end_of: Callable[[int], tuple[int, int]], log_end: int
) -> Truncation:
    """Return the truncation after a diverging response: the leader's `leader_epoch` ends at `leader_end`.

    `end_of(epoch)`: (epoch, end offset) in the own log of the largest epoch that is not above the given one; (-1, -1)
    if there is none. If that epoch is below the leader's, the logs may diverge even earlier: the log is truncated to
    the end of that epoch, and the next fetch continues from there (KIP-279).
    """
    own_epoch, own_end = end_of(leader_epoch)
    if own_epoch == NO_LEADER_EPOCH:
        return Truncation(min(leader_end, log_end))
    return Truncation(min(own_end, leader_end, log_end))


class Remedy(Enum):
    """The operation for a fetch offset that the leader does not have."""

    TRUNCATE = "truncate the log to the offset"
    START_AT = "delete all records and start the log at the offset"
    FETCH_AGAIN = "the own log end offset is within the leader's log now"


def remedy_for(log_end: int, leader_start: int, leader_end: int) -> tuple[Remedy, int]:
    """Return the remedy and its offset.

    The leader's log is from `leader_start` to `leader_end`; the own log ends at `log_end`.
    """
    if leader_end < log_end:
        return Remedy.TRUNCATE, leader_end  # after an unclean election: the leader never had the own last records
    if leader_start > log_end:
        return Remedy.START_AT, leader_start
    return Remedy.FETCH_AGAIN, log_end
