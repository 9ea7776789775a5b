"""What the members of one partition's groups take in memory: bounded whatever `group.max.size` allows.

Members are counted only when what was found free by the last count is used up, so that they need no books of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from odradek.coordinator.by_id import text_bytes_max

MEMBERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all members of one partition of `__consumer_offsets`; Kafka has no limit, and neither has its `group.max.size` by default.
Who would take more must try again (COORDINATOR_NOT_AVAILABLE); members that say nothing longer than before go on.
"""
MEMBER_BYTES: Final = 1_024
"""Taken for every member, or id that was given out, beside what it says: its records in memory, and its timer."""
TEXT_BYTES: Final = 100
"""Taken for every name that a member says, beside its letters: the object, and its places in containers."""
SPARE_SHARE: Final = 4
"""One part of so many is left free by newcomers: those that are in say more in a rebalance than they said first."""
ASSIGNED_BYTES: Final = 200
"""Taken for every partition that a group of the consumer protocol has given to a member."""
RECOUNT_PAUSE_MS: Final = 1_000
"""A count looks at every member, so a flood does not lead to one for each of its requests."""


class Counted(Protocol):
    @property
    def members_bytes(self) -> int:
        """MEMBER_BYTES for each member, what they have said, and what they were assigned."""


def text_bytes(*texts: str | None) -> int:
    """What ids and names take."""
    return sum(text_bytes_max(text) + TEXT_BYTES for text in texts if text)


@dataclass(slots=True)
class Census:
    """Soft state of a shard. `left`: what may still be taken before members have to be counted again."""

    left: int = 0
    counted_ms: int | None = None

    def has_room(self, groups: Iterable[Counted], cost: int, now_ms: int, *, newcomer: bool) -> bool:
        """May somebody take `cost` bytes more? They are taken then."""
        if cost <= 0:
            return True
        wanted = cost + (MEMBERS_BYTES_MAX // SPARE_SHARE if newcomer else 0)
        if wanted > self.left and (self.counted_ms is None or abs(now_ms - self.counted_ms) >= RECOUNT_PAUSE_MS):
            self.left = MEMBERS_BYTES_MAX - sum(group.members_bytes for group in groups)
            self.counted_ms = now_ms
        if wanted > self.left:
            return False
        self.left -= cost
        return True

    def took(self, cost: int) -> None:
        """Somebody who is in already has been given what takes so much: nobody is refused that, but whoever comes next."""
        self.left -= cost
