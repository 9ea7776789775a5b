"""Encode offset records, and collect records for one batch."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from odradek.coordinator.group.offset_store import NO_EXPIRE_MS, ZERO_TOPIC_ID, OffsetKey, StoredOffset
from odradek.coordinator.group.records import Entry, to_record
from odradek.protocol.batch import HEADER_BYTES
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.runtime.shard import ShardRecord

VALUE_VERSION: Final = 4
VALUE_VERSION_EXPIRING: Final = 1
"""The only version with a retention per offset. It has no leader epoch and no topic id."""

RECORD_OVERHEAD_BYTES: Final = 25
"""Maximum bytes of the other fields of a record: length, attributes, deltas, lengths of key and value, headers."""


def commit_record(
    offset_key: OffsetKey,
    offset: int,
    leader_epoch: int,
    metadata: str | None,
    *,
    now_ms: int,
    expire_ms: int = NO_EXPIRE_MS,
    topic_id: UUID = ZERO_UUID,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> ShardRecord:
    """Return the record of a commit. With a producer, the offset is pending until the marker."""
    value = OffsetCommitValue(offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id)
    version = VALUE_VERSION
    if expire_ms != NO_EXPIRE_MS:
        # The memo must equal the decoded record: version 1 has no leader epoch and no topic id.
        value.leader_epoch, value.topic_id, version = NO_LEADER_EPOCH, ZERO_UUID, VALUE_VERSION_EXPIRING
    key = OffsetCommitKey(*offset_key)
    return to_record(key, value, version, producer_id=producer_id, producer_epoch=producer_epoch)


def tombstone(offset_key: OffsetKey) -> ShardRecord:
    """Return the tombstone of an offset. It also removes pending offsets of the same key."""
    return to_record(OffsetCommitKey(*offset_key), None)


def offset_key_of(entry: Entry) -> OffsetKey:
    """Return the group, topic and partition in the key of an offset record."""
    key: OffsetCommitKey | LegacyOffsetCommitKey = entry.key
    return key.group, key.topic, key.partition


def packed_offset(entry: Entry, record_offset: int) -> bytes | None:
    """Return the packed offset of the record at log offset `record_offset`, or None for a tombstone."""
    value: OffsetCommitValue | LegacyOffsetCommitValue | None = entry.value
    if value is None:
        return None
    if isinstance(value, LegacyOffsetCommitValue):
        return StoredOffset(
            value.offset,
            NO_LEADER_EPOCH,
            value.commit_timestamp,
            NO_EXPIRE_MS,
            record_offset,
            ZERO_TOPIC_ID,
            value.metadata,
        ).packed()
    return StoredOffset(
        value.offset,
        value.leader_epoch,
        value.commit_timestamp,
        value.expire_timestamp,
        record_offset,
        value.topic_id.bytes,
        value.metadata,
    ).packed()


def record_bytes_max(record: ShardRecord) -> int:
    """Return the maximum size of `record` in a batch, in bytes."""
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")


class Batch:
    """Records for one batch of at most `bytes_max` bytes. The first addition is always accepted."""

    def __init__(self, bytes_max: int) -> None:
        self.records: list[ShardRecord] = []
        self._bytes_left = bytes_max - HEADER_BYTES

    def add(self, records: Sequence[ShardRecord]) -> bool:
        """Add all records and return True, or add none and return False if they do not fit."""
        size = sum(map(record_bytes_max, records))
        if size > self._bytes_left and self.records:
            return False
        self.records += records
        self._bytes_left -= size
        return True
