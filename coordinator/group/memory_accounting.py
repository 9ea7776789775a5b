"""Bound the memory of the members of all groups in one partition, independently of `group.max.size`.

Members are counted only when the free memory of the last count is used up. No group keeps a running total.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from odradek.coordinator.bounded_ids import text_bytes_max
from odradek.frozen import frozen_dataclass

MEMBERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of all members in one partition of `__consumer_offsets`: metadata, names, and assigned partitions.

Kafka has no limit, nor a default `group.max.size`. A member whose metadata does not grow is never refused.
"""
MEMBER_BYTES: Final = 1_024
"""Bytes per member or pending member id, in addition to its ids and metadata: its objects in memory, and its timer."""
TEXT_BYTES: Final = 100
"""Bytes per id or name of a member, in addition to its characters: the object, and its entries in containers."""
DESCRIBED_COPIES: Final = 3
"""Copies of the ids and metadata of a member in a response that describes it: one in objects, and two encoded ones."""
DESCRIBED_TOPIC_BYTES: Final = 2_000
"""Maximum bytes of one topic in an assignment of a described member, with a name of 249 characters."""
DESCRIBED_PARTITION_BYTES: Final = 60
"""Maximum bytes of one partition in an assignment of a described member."""
RESERVED_FRACTION: Final = 4
"""Part of MEMBERS_BYTES_MAX that new members leave free, as a divisor: a quarter.

The metadata of existing members grows when they rejoin.
"""
ASSIGNED_BYTES: Final = 200
"""Bytes per partition that a group of the consumer protocol has assigned to a member."""
RECOUNT_INTERVAL_MS: Final = 1_000
"""Minimum time between two counts. A count visits every member, so not every request of a flood may start one."""


def text_bytes(*texts: str | None) -> int:
    """Return the bytes that ids and names take in memory."""
    return sum(text_bytes_max(text) + TEXT_BYTES for text in texts if text)


def described_bytes(size: int) -> int:
    """Return the maximum memory of a described member of `size` bytes, with its encoded form, in bytes."""
    return MEMBER_BYTES + DESCRIBED_COPIES * (size - MEMBER_BYTES)


@frozen_dataclass(frozen=True, slots=True)
class MemoryAccounting:
    """Memory that the members of one shard can still take. Soft state: an immutable value that is replaced.

    `free_bytes`: bytes that members can take before the next count.
    """

    free_bytes: int = 0
    counted_ms: int | None = None

    def recounted(
        self, members_bytes: Iterable[int], cost: int, now_ms: int, *, is_new_member: bool
    ) -> "MemoryAccounting":
        """Count the members if `cost` bytes are more than what is free, but at most once per RECOUNT_INTERVAL_MS.

        `members_bytes` yields the bytes of the members of each group. It is read only for a count.
        """
        is_recent = self.counted_ms is not None and abs(now_ms - self.counted_ms) < RECOUNT_INTERVAL_MS
        if is_recent or self.has_capacity(cost, is_new_member=is_new_member):
            return self
        return MemoryAccounting(MEMBERS_BYTES_MAX - sum(members_bytes), now_ms)

    def has_capacity(self, cost: int, *, is_new_member: bool) -> bool:
        """Return True if a member may take `cost` more bytes."""
        return cost + (MEMBERS_BYTES_MAX // RESERVED_FRACTION if is_new_member else 0) <= self.free_bytes

    def after_reserving(self, cost: int) -> "MemoryAccounting":
        """Return the accounting with `cost` fewer free bytes."""
        return replace(self, free_bytes=self.free_bytes - cost)
