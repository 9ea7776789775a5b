"""What the members of one partition's groups take in memory: bounded whatever `group.max.size` allows.

Members are counted only when what was found free by the last count is used up, so that they need no books of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

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


def text_bytes(*texts: str | None) -> int:
    """What ids and names take."""
    return sum(text_bytes_max(text) + TEXT_BYTES for text in texts if text)


@dataclass(frozen=True, slots=True)
class MemoryAccounting:
    """Memory that members of one shard may still take. Soft state: a value, replaced whole.

    `left`: bytes that may still be taken before members are counted again.
    """

    left: int = 0
    counted_ms: int | None = None

    def counted(self, members_bytes: Iterable[int], cost: int, now_ms: int, *, newcomer: bool) -> "MemoryAccounting":
        """Count the members anew if `cost` bytes are more than what is left and the last count is not too recent.

        `members_bytes` has the bytes of the members of each group. It is read only for a count.
        """
        recent = self.counted_ms is not None and abs(now_ms - self.counted_ms) < RECOUNT_PAUSE_MS
        if recent or self.has_capacity(cost, newcomer=newcomer):
            return self
        return MemoryAccounting(MEMBERS_BYTES_MAX - sum(members_bytes), now_ms)

    def has_capacity(self, cost: int, *, newcomer: bool) -> bool:
        """Determine whether a member may take `cost` bytes more."""
        return cost + (MEMBERS_BYTES_MAX // SPARE_SHARE if newcomer else 0) <= self.left

    def taken(self, cost: int) -> "MemoryAccounting":
        """Return the accounting after `cost` bytes were taken."""
        return replace(self, left=self.left - cost)
