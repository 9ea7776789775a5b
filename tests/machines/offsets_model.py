"""Model of committed offsets: dictionaries of named tuples.

It shares no code with coordinator/group/offsets: it has no packed bytes, no index, no records and no slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

WEEK_MS = 604_800_000

GroupPartition = tuple[str, str, int]
"""(group, topic, partition)"""


class Offset(NamedTuple):
    value: int
    commit_ms: int
    expire_ms: int
    topic_id: int
    position: int
    """Log offset of its record."""


@dataclass
class Members:
    """A group with a metadata record: topics of its members (None without members), and the time since which it is
    empty.
    """

    topics: tuple[str, ...] | None
    since_ms: int


@dataclass
class Model:
    """Model of the offsets of all groups."""

    committed: dict[GroupPartition, Offset] = field(default_factory=dict)
    pending: dict[int, dict[GroupPartition, Offset]] = field(default_factory=dict)
    groups: dict[str, Members | None] = field(default_factory=dict)
    """Group -> its metadata, or None if only offset commits created the group."""

    # ---- queries ----------------------------------------------------------------------------------------------------

    def is_pending(self, partition: GroupPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())

    def has_pending(self, group: str) -> bool:
        return any(partition[0] == group for offsets in self.pending.values() for partition in offsets)

    def is_subscribed(self, group: str, topic: str) -> bool:
        members = self.groups.get(group)
        return members is not None and members.topics is not None and topic in members.topics

    def has_members(self, group: str) -> bool:
        members = self.groups.get(group)
        return members is not None and members.topics is not None

    def fetch(self, partition: GroupPartition, topic_id: int, *, stable: bool) -> object:
        if stable and self.is_pending(partition):
            return "UNSTABLE_OFFSET_COMMIT"
        offset = self.committed.get(partition)
        if partition[0] not in self.groups or offset is None:
            return -1
        other_topic = offset.topic_id and topic_id and offset.topic_id != topic_id
        return -1 if other_topic else offset.value

    def fetch_all(self, group: str, *, stable: bool) -> dict[tuple[str, int], object]:
        return {
            (partition[1], partition[2]): self.fetch(partition, 0, stable=stable)
            for partition in self.committed
            if partition[0] == group and group in self.groups
        }

    def expired(self, partition: GroupPartition, now_ms: int) -> bool:
        offset = self.committed[partition]
        if self.is_subscribed(partition[0], partition[1]) or self.is_pending(partition):
            return False
        if offset.expire_ms != -1:
            return now_ms >= offset.expire_ms
        members = self.groups.get(partition[0])
        counts_from = offset.commit_ms
        if members is not None and members.topics is None:
            counts_from = members.since_ms
        return now_ms - counts_from >= WEEK_MS

    # ---- changes ----------------------------------------------------------------------------------------------------

    def commit(self, partition: GroupPartition, offset: Offset) -> None:
        self.committed[partition] = offset
        self.groups.setdefault(partition[0], None)

    def commit_pending(self, producer: int, partition: GroupPartition, offset: Offset) -> None:
        self.pending.setdefault(producer, {})[partition] = offset
        self.groups.setdefault(partition[0], None)

    def end(self, producer: int, *, commit: bool) -> None:
        for partition, offset in self.pending.pop(producer, {}).items():
            before = self.committed.get(partition)
            if commit and (before is None or before.position < offset.position):
                self.commit(partition, offset)

    def delete(self, partition: GroupPartition) -> str:
        if self.is_subscribed(partition[0], partition[1]):
            return "GROUP_SUBSCRIBED_TO_TOPIC"
        if self.is_pending(partition):
            return "UNSTABLE_OFFSET_COMMIT"
        self.committed.pop(partition, None)
        return "NONE"

    def delete_group(self, group: str) -> str | None:
        if group not in self.groups:
            return "GROUP_ID_NOT_FOUND"
        if self.has_members(group) or self.has_pending(group):
            return "NON_EMPTY_GROUP"
        self.forget(group)
        return None

    def forget(self, group: str) -> None:
        self.committed = {partition: offset for partition, offset in self.committed.items() if partition[0] != group}
        del self.groups[group]

    def erase(self, partition: GroupPartition) -> None:
        """Apply a tombstone that another coordinator wrote."""
        self.committed.pop(partition, None)
        for offsets in self.pending.values():
            offsets.pop(partition, None)

    def topic_deleted(self, topic: str, topic_id: int) -> None:
        partitions = {*self.committed, *(partition for offsets in self.pending.values() for partition in offsets)}
        for partition in partitions:
            if partition[1] != topic:
                continue
            offset = self.committed.get(partition)
            if self.is_pending(partition) or (offset is not None and offset.topic_id in {0, topic_id}):
                self.erase(partition)  # pending offsets have no topic id: they match each topic of the name

    def sweep(self, now_ms: int) -> None:
        self.committed = {
            partition: offset for partition, offset in self.committed.items() if not self.expired(partition, now_ms)
        }
        for group in list(self.groups):
            idle = not self.has_members(group) and not self.has_pending(group)
            if idle and all(partition[0] != group for partition in self.committed):
                del self.groups[group]
