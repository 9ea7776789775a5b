"""What a leader knows of each replica, and what follows from it: commitment and who may succeed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.cluster.raft.messages import FetchRequest

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class Progress:
    """One replica. Times are monotonic milliseconds.

    `end_offset`: the replica's log agrees with the leader's below it; UNKNOWN_OFFSET before its first valid fetch.
    `knows_leader`: it has answered BeginQuorumEpoch or has fetched. `parked`: a fetch that waits for news, until `parked_until_ms`.
    """

    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    last_caught_up_ms: int | None = None
    knows_leader: bool = False
    begin_sent_ms: int | None = None
    parked: FetchRequest | None = None
    parked_until_ms: int = 0

    def heard(self, now_ms: int) -> None:
        """It has asked for entries or for a snapshot: whatever the answer, it follows."""
        self.last_fetch_ms = now_ms
        self.knows_leader = True

    def fetched(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        self.end_offset = fetch_offset
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms


def majority(voters: int) -> int:
    return voters // 2 + 1


def committed_offset(end_offsets: Iterable[int]) -> int:
    """The offset below which a majority of the voters has everything durably."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[majority(len(ordered)) - 1]


def successors(progress: Mapping[int, Progress]) -> tuple[int, ...]:
    """Voters in the order in which they should try to lead next: longest log first, then lowest id."""
    return tuple(sorted(progress, key=lambda voter: (-progress[voter].end_offset, voter)))


def successor_wait_ms(position: int, count: int, backoff_max_ms: int) -> int:
    """How long the `position`-th (from 0) of `count` successors waits: none for the first, then doubling up to the maximum."""
    if position == 0:
        return 0
    return (backoff_max_ms >> (count - 1)) << (position - 1)
