"""The records of `__consumer_offsets`: all types with Kafka's bytes, unknown ones, and malformed ones."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.group.offset_store import StoredOffset
from odradek.coordinator.group.records import _TYPES, Entry, from_record, to_record
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from odradek.protocol.records.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from odradek.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey
from odradek.protocol.records.consumer_group_target_assignment_member import ConsumerGroupTargetAssignmentMemberKey
from odradek.protocol.records.consumer_group_target_assignment_metadata import ConsumerGroupTargetAssignmentMetadataKey
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.schema import Message
from odradek.runtime.shard import ShardRecord
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds
from tests.support.messages import struct_values, versions

TS = 1_700_000_000_000
TOPIC_ID = UUID(int=(1 << 64) + 2)
OFFSET_KEY = "000100016700017400000003"
BODY = "000000000000002a"
STAMP = "0000018bcfe56800"
CASES = [(number, version) for number, (_, value) in _TYPES.items() for version in versions(value)]
KEYS: list[tuple[Message, str]] = [
    (LegacyOffsetCommitKey("g", "t", 3), "000000016700017400000003"),
    (OffsetCommitKey("g", "t", 3), OFFSET_KEY),
    (GroupMetadataKey("g"), "0002000167"),
    (ConsumerGroupMetadataKey("g"), "0003000167"),
    (ConsumerGroupPartitionMetadataKey("g"), "0004000167"),
    (ConsumerGroupMemberMetadataKey("g", "m"), "000500016700016d"),
    (ConsumerGroupTargetAssignmentMetadataKey("g"), "0006000167"),
    (ConsumerGroupTargetAssignmentMemberKey("g", "m"), "000700016700016d"),
    (ConsumerGroupCurrentMemberAssignmentKey("g", "m"), "000800016700016d"),
    (ConsumerGroupRegularExpressionKey("g", "a.*"), "00100001670003612e2a"),
]
VALUES: list[tuple[Message, Message, int, str]] = [
    (OffsetCommitKey(), OffsetCommitValue(42, -1, "", TS), 0, f"0000{BODY}0000{STAMP}"),
    (OffsetCommitKey(), OffsetCommitValue(42, -1, "", TS, -1), 1, f"0001{BODY}0000{STAMP}ffffffffffffffff"),
    (OffsetCommitKey(), OffsetCommitValue(42, -1, "", TS), 2, f"0002{BODY}0000{STAMP}"),
    (OffsetCommitKey(), OffsetCommitValue(42, 7, "", TS), 3, f"0003{BODY}000000070000{STAMP}"),
    (OffsetCommitKey(), OffsetCommitValue(42, 7, "", TS), 4, f"0004{BODY}0000000701{STAMP}00"),
    (
        OffsetCommitKey(),
        OffsetCommitValue(42, 7, "", TS, topic_id=TOPIC_ID),
        4,
        f"0004{BODY}0000000701{STAMP}01001000000000000000010000000000000002",
    ),
    (
        GroupMetadataKey(),
        GroupMetadataValue("consumer", 1, None, None, TS, []),
        3,
        f"00030008636f6e73756d657200000001ffffffff{STAMP}00000000",
    ),
]


def read(record: ShardRecord) -> Entry | None:
    """Decode the record as a replay does."""
    return from_record(replace(record, memo=None))


def test_every_record_type_has_a_case() -> None:
    assert sorted(int(key[:4], 16) for _, key in KEYS) == sorted(_TYPES) == [*range(9), 16]


@pytest.mark.parametrize(("key", "expected"), KEYS)
def test_keys_have_kafkas_bytes(key: Message, expected: str) -> None:
    record = to_record(key, None)
    assert record.key is not None
    assert record.key.hex() == expected
    assert read(record) == Entry(key, None)


@pytest.mark.parametrize(("key", "value", "version", "expected"), VALUES)
def test_values_have_kafkas_bytes(key: Message, value: Message, version: int, expected: str) -> None:
    record = to_record(key, value, version)
    assert record.value is not None
    assert record.value.hex() == expected
    assert read(record) == Entry(key, value)


@pytest.mark.parametrize(("number", "version"), CASES)
@given(data=st.data())
def test_every_version_of_every_type_decodes_to_the_encoded_value(
    number: int, version: int, data: st.DataObject
) -> None:
    key_type, value_type = _TYPES[number]
    key = data.draw(struct_values(key_type, 0))
    value = data.draw(struct_values(value_type, version))
    assert isinstance(key, Message)
    assert isinstance(value, Message)
    assert read(to_record(key, value, version, detail="not encoded")) == Entry(key, value)


def test_record_detail_is_not_in_the_log() -> None:
    record = to_record(OffsetCommitKey("g", "t", 3), None, detail="mine", producer_id=7, producer_epoch=1)
    entry = from_record(record)
    assert entry is not None
    assert entry.detail == "mine"
    assert (record.producer_id, record.producer_epoch) == (7, 1)
    assert read(record) == Entry(OffsetCommitKey("g", "t", 3), None)


# ---- unknown --------------------------------------------------------------------------------------------------------

UNKNOWN_TYPES = [-1, 9, 10, 15, 17, 23, 24, 32_767]


@pytest.mark.parametrize("number", UNKNOWN_TYPES)
@pytest.mark.parametrize("value", [None, b"", b"\0\0rest"])
def test_unknown_record_types_are_skipped(number: int, value: bytes | None) -> None:
    """Kafka's share and streams groups write their records to the same topic."""
    assert from_record(ShardRecord(number.to_bytes(2, "big", signed=True) + b"\xff anything", value)) is None


@pytest.mark.parametrize("number", sorted(_TYPES))
def test_values_of_unknown_versions_are_malformed(number: int) -> None:
    key_type, value_type = _TYPES[number]
    key = to_record(key_type(), None).key
    for version in (-1, value_type.MAX_VERSION + 1, 32_767):
        with pytest.raises(Malformed, match=f"version {version}"):
            from_record(ShardRecord(key, version.to_bytes(2, "big", signed=True) + b"\xff"))


def test_unknown_types_are_ignored_and_a_value_of_an_unknown_version_blocks_its_group() -> None:
    shard = GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds())
    shard.apply(0, ShardRecord(b"\0\x0brest", b"rest"), 0)
    shard.apply(1, ShardRecord(bytes.fromhex(OFFSET_KEY), b"\0\x05rest"), 0)
    shard.apply(2, ShardRecord(bytes.fromhex("0002000167"), None, producer_id=5, producer_epoch=0), 0)
    assert (shard.unreadable.ignored, shard.unreadable.blocked, shard.state.skipped_records) == (1, 1, 1)
    assert shard.state.offsets.count == 0
    reports = shard.unreadable.take_reports()
    assert [(report.event, report.severe) for report in reports] == [
        ("unreadable record", True),
        ("records ignored", False),
    ]


# ---- malformed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, b"", b"\0", "0001", "00010001", OFFSET_KEY[:-2], OFFSET_KEY + "00"])
def test_keys_of_wrong_length_are_malformed(key: bytes | str | None) -> None:
    with pytest.raises(Malformed):
        from_record(ShardRecord(bytes.fromhex(key) if isinstance(key, str) else key, None))


@pytest.mark.parametrize(("key", "value", "version", "expected"), VALUES)
def test_value_truncated_anywhere_is_malformed(key: Message, value: Message, version: int, expected: str) -> None:
    record = to_record(key, value, version)
    whole = bytes.fromhex(expected)
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            from_record(ShardRecord(record.key, whole[:end]))
    with pytest.raises(Malformed):
        from_record(ShardRecord(record.key, whole + b"\0"))


@given(
    key=st.none() | st.binary(max_size=24) | st.builds(bytes.__add__, st.sampled_from([b"\0\1", b"\0\5"]), st.binary()),
    value=st.none() | st.binary(max_size=40),
)
def test_arbitrary_bytes_raise_only_malformed(key: bytes | None, value: bytes | None) -> None:
    try:
        entry = from_record(ShardRecord(key, value))
    except Malformed:
        return
    assert entry is None or isinstance(entry.key, Message)


@given(
    value=st.builds(
        bytes.__add__, st.integers(0, 4).map(lambda version: version.to_bytes(2, "big")), st.binary(max_size=48)
    ),
    producer_id=st.sampled_from([-1, 7]),
)
def test_every_decodable_offset_record_can_be_applied(value: bytes, producer_id: int) -> None:
    shard = GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds())
    shard.apply(0, ShardRecord(bytes.fromhex(OFFSET_KEY), value, producer_id, 0), 0)
    if shard.unreadable:
        return
    assert shard.state.offsets.count + shard.state.offsets.pending_count == 1


# ---- old records ----------------------------------------------------------------------------------------------------


def test_legacy_offset_records_are_applied() -> None:
    """Only Kafka before 0.9 wrote them."""
    shard = GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds())
    record = to_record(LegacyOffsetCommitKey("g", "t", 3), LegacyOffsetCommitValue(42, "mine", TS))
    shard.apply(9, replace(record, memo=None), 0)
    assert shard.state.offsets.get("g", "t", 3) == StoredOffset(42, -1, TS, -1, 9, bytes(16), "mine")
    assert shard.state.groups.keys() == {"g"}
    shard.apply(10, replace(to_record(LegacyOffsetCommitKey("g", "t", 3), None), memo=None), 0)
    assert shard.state.offsets.count == 0


@pytest.mark.parametrize("version", range(5))
def test_offset_records_of_every_version_are_applied(version: int) -> None:
    shard = GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds())
    value = OffsetCommitValue(42, 7 if version >= 3 else -1, "mine", TS, TS + 5 if version == 1 else -1)
    shard.apply(9, replace(to_record(OffsetCommitKey("g", "t", 3), value, version), memo=None), 0)
    expected = StoredOffset(42, value.leader_epoch, TS, value.expire_timestamp, 9, bytes(16), "mine")
    assert shard.state.offsets.get("g", "t", 3) == expected


def test_consumer_group_records_are_decoded() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(5, 4, 0, [], [])
    record = to_record(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)
    assert read(record) == Entry(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)
    epoch = to_record(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(5, 99))
    assert epoch.value is not None
    assert epoch.value[:2] == b"\0\0"
