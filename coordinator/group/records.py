"""Encode and decode the records of `__consumer_offsets`, byte for byte as Kafka does (GroupCoordinatorRecordSerde).

A key is an int16 record type and the fields of the key. A value is an int16 version and the fields of the value. A
tombstone has no value.
"""

from typing import Any, Final

from odradek.frozen import frozen_dataclass
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
EPOCH_MAX: Final = 2**31 - 2**20
"""Maximum epoch or generation of a group in the log. The remaining 2**20 increments take longer than a group exists.

Apache Kafka, and Odradek before decision 0103, let a client with the client id of the admin client append any epoch.
"""
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
"""Record type -> message classes of key and value."""
_TYPE_OF: Final = {key: number for number, (key, _) in _TYPES.items()}
"""Message class of the key -> record type."""


@frozen_dataclass(frozen=True, slots=True)
class Entry:
    """One decoded record.

    `value` is None for a tombstone. `detail` is data from the decision for `apply`, not encoded.
    """

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
    """Return the record with `value` for `key`, encoded in `version`. Without a value it is a tombstone.

    `producer_id` and `producer_epoch` identify the transaction that contains the record.
    """
    return ShardRecord(
        _TYPE_OF[type(key)].to_bytes(TYPE_BYTES, "big") + encode(key, KEY_VERSION),
        None if value is None else version.to_bytes(VERSION_BYTES, "big") + encode(value, version),
        producer_id,
        producer_epoch,
        memo=Entry(key, value, detail),
    )


def check_epoch(epoch: int) -> int:
    """Return the epoch or generation of a group. Raise Malformed if it exceeds EPOCH_MAX."""
    if epoch > EPOCH_MAX:
        raise Malformed(f"epoch {epoch} of a group exceeds {EPOCH_MAX}")
    return epoch


def group_of(key: Any) -> str:
    """Return the group id in the decoded key of a record."""
    group_id: str = key.group if hasattr(key, "group") else key.group_id
    return group_id


def blocked_group(key: bytes | None) -> str | None:
    """Return the group that a record with `key` belongs to; None if the key cannot be decoded."""
    try:
        entry = from_record(ShardRecord(key, None))
    except Malformed:
        return None
    return None if entry is None else group_of(entry.key)


def from_record(record: ShardRecord) -> Entry | None:
    """Decode a record.

    Return None if this broker does not know its type. Raise Malformed if it is corrupt, or if the version of its value
    is unknown.
    """
    if record.memo is not None:
        entry: Entry = record.memo
        return entry
    if record.key is None or len(record.key) < TYPE_BYTES:
        raise Malformed("a record of __consumer_offsets has no key")
    types = _TYPES.get(int.from_bytes(record.key[:TYPE_BYTES], "big", signed=True))
    if types is None:
        return None
    key = decode(types[0], KEY_VERSION, record.key[TYPE_BYTES:])
    if record.value is None:
        return Entry(key, None)
    if len(record.value) < VERSION_BYTES:
        raise Malformed(
            f"the value of a record of __consumer_offsets has {len(record.value)} bytes, too few for a version"
        )
    version = int.from_bytes(record.value[:VERSION_BYTES], "big", signed=True)
    if not types[1].MIN_VERSION <= version <= types[1].MAX_VERSION:
        raise Malformed(f"{types[1].NAME} has the unknown version {version}")
    return Entry(key, decode(types[1], version, record.value[VERSION_BYTES:]))
