"""The records of `__consumer_offsets`: (key message, value message) <-> bytes, byte for byte Kafka's.

A key is an int16 record type and the key's fields; a value an int16 version and the value's fields; a tombstone has no
value (kafka-facts 4). What a record means is the business of who applies it.
"""

from dataclasses import dataclass
from typing import Any, Final

from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import Malformed
from odradek.protocol.records import consumer_group_current_member_assignment as current_assignment
from odradek.protocol.records import consumer_group_member_metadata as member_metadata
from odradek.protocol.records import consumer_group_metadata as consumer_metadata
from odradek.protocol.records import consumer_group_partition_metadata as partition_metadata
from odradek.protocol.records import consumer_group_regular_expression as regular_expression
from odradek.protocol.records import consumer_group_target_assignment_member as target_member
from odradek.protocol.records import consumer_group_target_assignment_metadata as target_metadata
from odradek.protocol.records import group_metadata, legacy_offset_commit, offset_commit
from odradek.protocol.schema import Message
from odradek.runtime.shard import ShardRecord

KEY_VERSION: Final = 0
TYPE_BYTES: Final = 2
VERSION_BYTES: Final = 2

_TYPES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    0: (legacy_offset_commit.LegacyOffsetCommitKey, legacy_offset_commit.LegacyOffsetCommitValue),
    1: (offset_commit.OffsetCommitKey, offset_commit.OffsetCommitValue),
    2: (group_metadata.GroupMetadataKey, group_metadata.GroupMetadataValue),
    3: (consumer_metadata.ConsumerGroupMetadataKey, consumer_metadata.ConsumerGroupMetadataValue),
    4: (
        partition_metadata.ConsumerGroupPartitionMetadataKey,
        partition_metadata.ConsumerGroupPartitionMetadataValue,
    ),
    5: (member_metadata.ConsumerGroupMemberMetadataKey, member_metadata.ConsumerGroupMemberMetadataValue),
    6: (
        target_metadata.ConsumerGroupTargetAssignmentMetadataKey,
        target_metadata.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        target_member.ConsumerGroupTargetAssignmentMemberKey,
        target_member.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        current_assignment.ConsumerGroupCurrentMemberAssignmentKey,
        current_assignment.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (
        regular_expression.ConsumerGroupRegularExpressionKey,
        regular_expression.ConsumerGroupRegularExpressionValue,
    ),
}
"""Record type -> messages of its key and its value."""
_TYPE_OF: Final = {key: number for number, (key, _) in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, decoded. `value` None is a tombstone. `detail` is what the decision hands to `apply` beside it."""

    key: Any
    value: Any
    detail: Any = None


def to_record(
    key: Message,
    value: Message | None,
    version: int = 0,
    *,
    detail: Any = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> ShardRecord:
    """The record that says `value` (in this version of its format) of `key`; a tombstone where it is None.

    `producer_id` and `producer_epoch` are those of the transaction that it is part of.
    """
    return ShardRecord(
        _TYPE_OF[type(key)].to_bytes(TYPE_BYTES, "big") + encode(key, KEY_VERSION),
        None if value is None else version.to_bytes(VERSION_BYTES, "big") + encode(value, version),
        producer_id,
        producer_epoch,
        memo=Entry(key, value, detail),
    )


def from_record(record: ShardRecord) -> Entry | None:
    """What a record says; None for types and versions that this broker does not know. Raises Malformed."""
    if record.memo is not None:
        entry: Entry = record.memo
        return entry
    if record.key is None or len(record.key) < TYPE_BYTES:
        raise Malformed("a record of __consumer_offsets without a key")
    types = _TYPES.get(int.from_bytes(record.key[:TYPE_BYTES], "big", signed=True))
    if types is None:
        return None
    key = decode(types[0], KEY_VERSION, record.key[TYPE_BYTES:])
    if record.value is None:
        return Entry(key, None)
    if len(record.value) < VERSION_BYTES:
        raise Malformed("a record of __consumer_offsets with half a version")
    version = int.from_bytes(record.value[:VERSION_BYTES], "big", signed=True)
    if not types[1].MIN_VERSION <= version <= types[1].MAX_VERSION:
        return None
    return Entry(key, decode(types[1], version, record.value[VERSION_BYTES:]))
