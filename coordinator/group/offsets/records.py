"""The records of offsets, and how many of them fit one batch."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from odradek.coordinator.group.offset_store import NEVER_MS, NO_EPOCH, ZERO_TOPIC_ID, Place, Stored
from odradek.coordinator.group.records import Entry, to_record
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.runtime.shard import ShardRecord

VALUE_VERSION: Final = 4
VALUE_VERSION_EXPIRING: Final = 1
"""The one version that has a retention of its own. It knows neither leader epochs nor topic ids."""

BATCH_HEADER_BYTES: Final = 61
RECORD_OVERHEAD_BYTES: Final = 25
"""Length, attributes, time and offset deltas, lengths of key and value, no headers: the most that varints can take."""


def commit_record(
    place: Place,
    offset: int,
    leader_epoch: int,
    metadata: str | None,
    *,
    now_ms: int,
    expire_ms: int = NEVER_MS,
    topic_id: UUID = ZERO_UUID,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> ShardRecord:
    """What a commit writes, pending if it has a producer."""
    value = OffsetCommitValue(offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id)
    version = VALUE_VERSION
    if expire_ms != NEVER_MS:
        # What the bytes cannot hold must not stand in the memo either: the state is what the log says.
        value.leader_epoch, value.topic_id, version = NO_EPOCH, ZERO_UUID, VALUE_VERSION_EXPIRING
    key = OffsetCommitKey(*place)
    return to_record(key, value, version, producer_id=producer_id, producer_epoch=producer_epoch)


def tombstone(place: Place) -> ShardRecord:
    """What makes an offset be gone, and with it all that is pending for the same place."""
    return to_record(OffsetCommitKey(*place), None)


def place_of(entry: Entry) -> Place:
    """The group, topic and partition that a record of an offset is about."""
    key: OffsetCommitKey | LegacyOffsetCommitKey = entry.key
    return key.group, key.topic, key.partition


def packed_offset(entry: Entry, record_offset: int) -> bytes | None:
    """What the record at `record_offset` says, in the form in which it is kept. None for a tombstone."""
    value: OffsetCommitValue | LegacyOffsetCommitValue | None = entry.value
    if value is None:
        return None
    if isinstance(value, LegacyOffsetCommitValue):
        return Stored(
            value.offset, NO_EPOCH, value.commit_timestamp, NEVER_MS, record_offset, ZERO_TOPIC_ID, value.metadata
        ).packed()
    return Stored(
        value.offset,
        value.leader_epoch,
        value.commit_timestamp,
        value.expire_timestamp,
        record_offset,
        value.topic_id.bytes,
        value.metadata,
    ).packed()


class Batch:
    """Records that are collected for one batch of at most `bytes_max`, whose first may be larger all the same."""

    def __init__(self, bytes_max: int) -> None:
        self.records: list[ShardRecord] = []
        self._bytes_left = bytes_max - BATCH_HEADER_BYTES

    def add(self, records: Sequence[ShardRecord]) -> bool:
        """Take all of them, or (False) none because they do not fit."""
        size = sum(RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") for record in records)
        if size > self._bytes_left and self.records:
            return False
        self.records += records
        self._bytes_left -= size
        return True
