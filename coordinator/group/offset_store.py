"""Committed and pending offsets of the groups of one partition of `__consumer_offsets`.

A partition can have hundreds of thousands of offsets, so an offset is stored as packed bytes (see `StoredOffset`).
They take a third of the memory of an object with its numbers, and the garbage collector does not visit them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from sys import intern
from typing import Final, NamedTuple

from odradek.protocol.primitives import ZERO_UUID

_FIXED: Final = Struct(">qiqqq16s")
_RECORD_OFFSET: Final = slice(28, 36)
NO_EXPIRE_MS: Final = -1
"""`StoredOffset.expire_ms` of an offset without its own retention."""
ZERO_TOPIC_ID: Final = ZERO_UUID.bytes

Partitions = dict[int, bytes]
"""Partition -> packed offset."""
OffsetKey = tuple[str, str, int]
"""Key of a committed offset: group id, topic name, partition index."""


class StoredOffset(NamedTuple):
    """Content of one offset record. `record_offset` is the offset of the record itself in the log."""

    offset: int
    leader_epoch: int
    commit_ms: int
    expire_ms: int
    record_offset: int
    topic_id: bytes
    metadata: str

    def packed(self) -> bytes:
        """Return the offset as bytes: the numbers in fixed size, then the metadata."""
        return _FIXED.pack(*self[:6]) + self.metadata.encode()


def unpack(packed: bytes) -> StoredOffset:
    """Return the offset that `StoredOffset.packed` packed."""
    return StoredOffset._make((*_FIXED.unpack_from(packed), packed[_FIXED.size :].decode()))


def record_offset_of(packed: bytes) -> int:
    """Return the log offset of the record that a packed offset comes from."""
    return int.from_bytes(packed[_RECORD_OFFSET], "big")


def metadata_bytes_of(packed: bytes) -> int:
    """Return the size of the client's metadata in a packed offset."""
    return len(packed) - _FIXED.size


@dataclass(slots=True)
class OffsetStore:
    """Offsets by (group, topic, partition): committed ones, and those pending in open transactions.

    Entries without content are removed, so two stores with the same offsets are equal.
    """

    groups: dict[str, dict[str, Partitions]] = field(default_factory=dict)
    """Committed offsets: group id -> topic -> partition -> packed offset."""
    pending: dict[int, dict[OffsetKey, bytes]] = field(default_factory=dict)
    """Pending offsets: producer id -> key -> packed offset."""
    open: dict[str, dict[tuple[str, int], dict[int, None]]] = field(default_factory=dict)
    """Index of `pending` by group: group id -> (topic, partition) -> ids of the producers with a pending offset."""
    count: int = 0
    """Number of committed offsets."""
    pending_count: int = 0
    """Number of pending offsets. A key that is pending in two transactions counts twice."""
    metadata_bytes: int = 0
    """Bytes of metadata of all committed and pending offsets."""
    end: int = field(default=0, compare=False)
    """All offsets in the store come from records below this log offset."""

    # ---- reading ----------------------------------------------------------------------------------------------------

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, bytes]]:
        """Return the committed offsets of a group: topic -> partition -> packed offset."""
        return self.groups.get(group_id, _NO_TOPICS)

    def get(self, group_id: str, topic: str, partition: int) -> StoredOffset | None:
        """Return the committed offset, or None."""
        packed = self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)
        return None if packed is None else unpack(packed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if an open transaction has an offset for this partition."""
        open_partitions = self.open.get(group_id)
        return open_partitions is not None and (topic, partition) in open_partitions

    def has_pending(self, group_id: str) -> bool:
        """Return True if an open transaction has an offset for this group."""
        return group_id in self.open

    def count_of(self, group_id: str) -> int:
        """Return the number of committed offsets of a group."""
        return sum(map(len, self.topics(group_id).values()))

    def packed(self, key: OffsetKey) -> bytes | None:
        """Return the committed offset in packed form, or None."""
        group_id, topic, partition = key
        return self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)

    # ---- writing, by `apply` alone ----------------------------------------------------------------------------------

    def put(self, key: OffsetKey, packed: bytes) -> None:
        """Store a committed offset."""
        group_id, topic, partition = key
        topics = self.groups.get(group_id)
        if topics is None:
            topics = self.groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[intern(topic)] = {}
        before = partitions.get(partition)
        if before is None:
            self.count += 1
        else:
            self.metadata_bytes -= metadata_bytes_of(before)
        self.metadata_bytes += metadata_bytes_of(packed)
        partitions[partition] = packed

    def put_pending(self, producer_id: int, key: OffsetKey, packed: bytes) -> None:
        """Store an offset of an open transaction.

        It replaces an earlier one of the same transaction with the same key.
        """
        group_id, topic, partition = key
        key = (intern(group_id), intern(topic), partition)  # all pending offsets share one string per group and topic
        offsets = self.pending.setdefault(producer_id, {})
        before = offsets.get(key)
        if before is None:
            self.pending_count += 1
        else:
            self.metadata_bytes -= metadata_bytes_of(before)
        self.metadata_bytes += metadata_bytes_of(packed)
        offsets[key] = packed
        open_partitions = self.open.setdefault(group_id, {})
        open_partitions.setdefault((topic, partition), {})[producer_id] = None

    def remove(self, key: OffsetKey) -> None:
        """Remove the committed offset and all pending offsets of a key, for a tombstone."""
        group_id, topic, partition = key
        topics = self.groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        packed = None if partitions is None else partitions.pop(partition, None)
        if topics is not None and packed is not None:
            self.count -= 1
            self.metadata_bytes -= metadata_bytes_of(packed)
            if not partitions:
                del topics[topic]
                if not topics:
                    del self.groups[group_id]
        for producer_id in tuple(self.open.get(group_id, {}).get((topic, partition), ())):
            offsets = self.pending[producer_id]
            self.metadata_bytes -= metadata_bytes_of(offsets.pop(key))
            if not offsets:
                del self.pending[producer_id]
            self._close(producer_id, key)

    def complete(self, producer_id: int, *, commit: bool) -> list[str]:
        """Complete a transaction. Return the group id of each offset that became the committed one.

        Of a plain commit and a transactional commit, the one with the later record in the log wins. The order of the
        markers does not matter: compaction keeps the later record.
        """
        group_ids: list[str] = []
        for key, packed in self.pending.pop(producer_id, {}).items():
            self._close(producer_id, key)
            self.metadata_bytes -= metadata_bytes_of(packed)
            if commit:
                group_id, topic, partition = key
                present = self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)
                if present is None or record_offset_of(present) < record_offset_of(packed):
                    self.put(key, packed)
                    group_ids.append(group_id)
        return group_ids

    def _close(self, producer_id: int, key: OffsetKey) -> None:
        group_id, topic, partition = key
        self.pending_count -= 1
        open_partitions = self.open[group_id]
        producers = open_partitions[topic, partition]
        del producers[producer_id]
        if not producers:
            del open_partitions[topic, partition]
            if not open_partitions:
                del self.open[group_id]


_NO_TOPICS: Final[Mapping[str, Partitions]] = {}
_NO_PARTITIONS: Final[Partitions] = {}
