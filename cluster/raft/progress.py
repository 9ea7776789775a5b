"""The leader's knowledge of the replicas, and the offsets and successors that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.protocol.special_values import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.cluster.raft.messages import FetchRequest


@dataclass(slots=True)
class Progress:
    """The leader's knowledge of one replica. Times are monotonic milliseconds."""

    end_offset: int = UNKNOWN_OFFSET
    """The replica's log agrees with the leader's below this offset. UNKNOWN_OFFSET before its first valid fetch."""
    last_fetch_ms: int = 0
    last_caught_up_ms: int | None = None
    begin_sent_ms: int | None = None
    """Time of the last BeginQuorumEpoch request to the replica."""
    parked: FetchRequest | None = None
    """A fetch that waits for entries or for a later high watermark, until `parked_until_ms`."""
    parked_until_ms: int = 0

    def fetch_received(self, now_ms: int) -> None:
        """Note that the replica has sent a fetch of records or of a snapshot: it follows this leader."""
        self.last_fetch_ms = now_ms

    def acknowledged(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        """Note that the replica durably has all entries below `fetch_offset`."""
        self.end_offset = fetch_offset
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms


def majority(voters: int) -> int:
    return voters // 2 + 1


def committed_offset(end_offsets: Iterable[int]) -> int:
    """Return the offset below which a majority of the voters has everything durably."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[majority(len(ordered)) - 1]


def successors(progress: Mapping[int, Progress]) -> tuple[int, ...]:
    """Return the replicas in the order in which they should start an election: longest log first, then lowest id."""
    return tuple(sorted(progress, key=lambda voter: (-progress[voter].end_offset, voter)))


def successor_wait_ms(position: int, count: int, backoff_max_ms: int) -> int:
    """Return the delay of the successor at `position` (from 0) of `count`: none, then doubling up to the maximum."""
    if position == 0:
        return 0
    return (backoff_max_ms >> (count - 1)) << (position - 1)
