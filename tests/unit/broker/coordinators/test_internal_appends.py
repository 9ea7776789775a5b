"""Records that a client appends to a topic of a coordinator: tombstones alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordinators.internal_appends import BATCH_BYTES_MAX, RECORDS_MAX, check_client_append
from odradek.coordinator.group import records as group_records
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.txn import records as txn_records
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.ports import TxnConfig
from odradek.protocol import record
from odradek.protocol.batch import NO_TIMESTAMP, Compression, build_batch, end_txn_marker
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.primitives import INT64_MAX
from odradek.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from odradek.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.records.transaction_log import TransactionLogValue
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import ShardRecord
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds
from tests.support.messages import struct_values, versions
from tests.support.txn_rig import ID, NOW_MS, Ids, Level, transaction

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from odradek.runtime.shard import Shard

PARTITIONS = 50
TRANSACTION = txn_records.to_record(transaction(TxnState.EMPTY), 2)
OFFSET = group_records.to_record(OffsetCommitKey("g", "t", 3), OffsetCommitValue(offset=1))
Rows = list[tuple[bytes | None, bytes | None]]


def check(topic: str, rows: Rows, partition: int) -> None:
    batch = build_batch([(key, value, NOW_MS, ()) for key, value in rows])
    check_client_append(topic, partition, PARTITIONS, batch)


@pytest.mark.parametrize(
    ("topic", "key", "owner"), [(TRANSACTION_STATE, TRANSACTION.key, ID), (CONSUMER_OFFSETS, OFFSET.key, "g")]
)
def test_tombstone_passes_in_its_partition_alone(topic: str, key: bytes, owner: str) -> None:
    home = partition_for(owner, PARTITIONS)
    check(topic, [(key, None)], home)
    with pytest.raises(Refusal, match="does not belong to partition") as refused:
        check(topic, [(key, None)], (home + 1) % PARTITIONS)
    assert refused.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (TRANSACTION_STATE, None, b"x"),
        (TRANSACTION_STATE, b"", b"x"),
        (TRANSACTION_STATE, b"\0\5", b"x"),
        (TRANSACTION_STATE, TRANSACTION.key, TRANSACTION.value),
        (TRANSACTION_STATE, TRANSACTION.key, b""),
        (TRANSACTION_STATE, TRANSACTION.key, b"\0\1broken"),
        (TRANSACTION_STATE, TRANSACTION.key, b"\0\x09"),
        (TRANSACTION_STATE, OFFSET.key, OFFSET.value),
        (CONSUMER_OFFSETS, None, b"x"),
        (CONSUMER_OFFSETS, b"\x7f\0", b"x"),
        (CONSUMER_OFFSETS, OFFSET.key, OFFSET.value),
        (CONSUMER_OFFSETS, OFFSET.key, b"\0\4\1"),
        (CONSUMER_OFFSETS, OFFSET.key, b"\x7f\xff"),
    ],
)
def test_other_record_is_refused_with_its_batch(topic: str, key: bytes | None, value: bytes | None) -> None:
    for partition in range(PARTITIONS):
        with pytest.raises(Refusal) as refused:
            check(topic, [(key, value)], partition)
        assert refused.value.error is ErrorCode.INVALID_RECORD
        assert refused.value.message


def test_batch_with_too_many_records_or_control_records_is_refused() -> None:
    home = partition_for("g", PARTITIONS)
    check(CONSUMER_OFFSETS, [(OFFSET.key, None)] * RECORDS_MAX, home)
    with pytest.raises(Refusal, match="at most 100 data records"):
        check(CONSUMER_OFFSETS, [(OFFSET.key, None)] * (RECORDS_MAX + 1), home)
    marker = end_txn_marker(producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, timestamp=NOW_MS)
    with pytest.raises(Refusal, match="at most 100 data records"):
        check_client_append(CONSUMER_OFFSETS, home, PARTITIONS, marker)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_batch_is_refused_by_its_size_before_its_records_are_read(compression: Compression) -> None:
    """One record can have millions of headers and a key of 100 MB. Its size bounds the check."""
    batch = build_batch([(OFFSET.key, None, NOW_MS, [("", None)] * BATCH_BYTES_MAX)], compression=compression)
    with pytest.raises(
        Refusal, match="at most 65536 bytes" if compression is Compression.NONE else "65,?536"
    ) as refused:
        check_client_append(CONSUMER_OFFSETS, partition_for("g", PARTITIONS), PARTITIONS, batch)
    assert refused.value.error is ErrorCode.INVALID_RECORD


def test_headers_of_records_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "read_headers", None)
    batch = build_batch([(OFFSET.key, None, NOW_MS, [("", None)] * 1_000)])
    check_client_append(CONSUMER_OFFSETS, partition_for("g", PARTITIONS), PARTITIONS, batch)


@pytest.mark.parametrize(
    ("topic", "key", "owner"), [(TRANSACTION_STATE, TRANSACTION.key, ID), (CONSUMER_OFFSETS, OFFSET.key, "g")]
)
@pytest.mark.parametrize("timestamp", [NO_TIMESTAMP - 1, NOW_MS - INT64_MAX + 10])
def test_tombstone_with_a_negative_timestamp_is_refused(topic: str, key: bytes, owner: str, timestamp: int) -> None:
    """Its distance from a delete horizon can exceed 64 bits, and compaction then never removes it."""
    home = partition_for(owner, PARTITIONS)
    check_client_append(topic, home, PARTITIONS, build_batch([(key, None, NO_TIMESTAMP, ())]))
    batch = build_batch([(key, None, NOW_MS, ()), (key, None, timestamp, ())])
    with pytest.raises(Refusal, match=f"timestamp {timestamp} is negative") as refused:
        check_client_append(topic, home, PARTITIONS, batch)
    assert refused.value.error is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("status", [TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_readable_transaction_is_refused_because_the_coordinator_would_send_its_markers(status: TxnState) -> None:
    planted = txn_records.to_record(transaction(status), 2)
    with pytest.raises(Refusal, match="only the transaction coordinator writes TransactionLogValue") as refused:
        check(TRANSACTION_STATE, [(planted.key, planted.value)], partition_for(ID, PARTITIONS))
    assert refused.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("key", "value", "version"),
    [
        (GroupMetadataKey("g"), GroupMetadataValue("consumer", 2**31 - 1), 3),
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(2**31 - 1), 0),
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(1), 0),
        (
            ConsumerGroupTargetAssignmentMetadataKey("g"),
            ConsumerGroupTargetAssignmentMetadataValue(2**31 - 1),
            0,
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
            ConsumerGroupCurrentMemberAssignmentValue(2**31 - 1, 0, 0),
            0,
        ),
    ],
)
def test_readable_value_of_a_group_is_refused_because_it_could_block_the_group(
    key: Message, value: Message, version: int
) -> None:
    planted = group_records.to_record(key, value, version)
    with pytest.raises(Refusal, match=f"only the group coordinator writes values for {key.NAME}") as refused:
        check(CONSUMER_OFFSETS, [(planted.key, planted.value)], partition_for("g", PARTITIONS))
    assert refused.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("topic", [TRANSACTION_STATE, CONSUMER_OFFSETS])
def test_transactional_batch_is_refused(topic: str) -> None:
    row = (OFFSET.key if topic == CONSUMER_OFFSETS else TRANSACTION.key, None, NOW_MS, ())
    batch = build_batch([row], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(Refusal, match="no transactional batch"):
        check_client_append(topic, 0, 1, batch)


def test_other_topics_are_not_checked() -> None:
    check("t", [(None, b"x")], 0)


# ---- whatever is accepted can be loaded -----------------------------------------------------------------------------

MEMBER = MemberMetadata(member_id="m", client_id="c", client_host="h", rebalance_timeout=1_000, session_timeout=1_000)
HONEST_GROUPS = [
    group_records.to_record(
        GroupMetadataKey("g"), GroupMetadataValue("consumer", 1, "range", "m", NOW_MS, [MEMBER]), 3
    ),
    group_records.to_record(ConsumerGroupMetadataKey("h"), ConsumerGroupMetadataValue(1)),
    group_records.to_record(
        ConsumerGroupCurrentMemberAssignmentKey("h", "m"), ConsumerGroupCurrentMemberAssignmentValue(1, 0, 0)
    ),
    OFFSET,
]
HONEST_TRANSACTIONS = [txn_records.to_record(transaction(TxnState.PREPARE_COMMIT), 2)]
ANY_VERSION = st.integers(-1, 5).map(lambda version: version.to_bytes(2, "big", signed=True))


def accepted(topic: str, record: ShardRecord) -> bool:
    try:
        check_client_append(topic, 0, 1, build_batch([(record.key, record.value, NOW_MS, ())]))
    except Refusal:
        return False
    return True


def load(shard: Shard[Any, Any], honest: list[ShardRecord], record: ShardRecord) -> tuple[Any, ...]:
    """Load a log in which the record of a client is between records of the coordinator. Return the effects."""
    log = [*honest, record, *honest]
    for offset, entry in enumerate(log):
        shard.apply(offset, ShardRecord(entry.key, entry.value), 1)
        shard.on_committed(offset + 1)
    return shard.on_loaded(2, NOW_MS).effects


@pytest.mark.parametrize("number", sorted(group_records._TYPES))
@given(data=st.data())
def test_accepted_record_of_a_group_blocks_nothing_after_a_load(number: int, data: st.DataObject) -> None:
    key_type, value_type = group_records._TYPES[number]
    key = data.draw(struct_values(key_type, 0))
    setattr(key, "group" if hasattr(key, "group") else "group_id", data.draw(st.sampled_from(["g", "h", "i"])))
    version = data.draw(st.sampled_from(versions(value_type)))
    value = data.draw(st.none() | struct_values(value_type, version))
    record = group_records.to_record(key, value, version)
    assert accepted(CONSUMER_OFFSETS, record) == (value is None)
    if value is not None and data.draw(st.booleans()):
        record = replace(record, value=data.draw(ANY_VERSION) + data.draw(st.binary(max_size=40)))
    if accepted(CONSUMER_OFFSETS, record):
        shard = GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds())
        load(shard, HONEST_GROUPS, record)
        assert (shard.unreadable.count, shard.unreadable.ignored, shard.unreadable.blocked) == (0, 0, 0)


@given(
    transactional_id=st.sampled_from([ID, "other"]),
    value=st.none() | struct_values(TransactionLogValue, 1).map(lambda value: b"\0\1" + encode(value, 1)),
)
def test_accepted_record_of_a_transactional_id_blocks_nothing_and_starts_no_marker(
    transactional_id: str, value: bytes | None
) -> None:
    record = ShardRecord(txn_records.encode_key(transactional_id), value)
    assert accepted(TRANSACTION_STATE, record) == (value is None)
    if value is None:
        shard = TransactionShard(TxnConfig(), Level(), Ids().take)
        (send,) = load(shard, HONEST_TRANSACTIONS, record)
        assert send.transactional_id == ID
        assert (shard.unreadable.count, shard.unreadable.ignored, shard.unreadable.blocked) == (0, 0, 0)
