"""Records that a client appends to a topic of a coordinator: only those that the coordinator can load."""

from __future__ import annotations

import pytest

from odradek.broker.coordinators.internal_appends import RECORDS_MAX, check_client_append
from odradek.coordinator.group import records as group_records
from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn import records as txn_records
from odradek.coordinator.txn.state import TxnState
from odradek.protocol.batch import build_batch, end_txn_marker
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.support.txn_rig import ID, NOW_MS, transaction

PARTITIONS = 50
TRANSACTION = txn_records.to_record(transaction(TxnState.EMPTY), 2)
OFFSET = group_records.to_record(OffsetCommitKey("g", "t", 3), OffsetCommitValue(offset=1))
Rows = list[tuple[bytes | None, bytes | None]]


def check(topic: str, rows: Rows, partition: int) -> None:
    batch = build_batch([(key, value, NOW_MS, ()) for key, value in rows])
    check_client_append(topic, partition, PARTITIONS, batch)


@pytest.mark.parametrize(
    ("topic", "key", "value", "owner"),
    [
        (TRANSACTION_STATE, TRANSACTION.key, TRANSACTION.value, ID),
        (TRANSACTION_STATE, TRANSACTION.key, None, ID),
        (CONSUMER_OFFSETS, OFFSET.key, OFFSET.value, "g"),
        (CONSUMER_OFFSETS, OFFSET.key, None, "g"),
    ],
)
def test_record_that_the_coordinator_can_load_passes_in_its_partition_alone(
    topic: str, key: bytes, value: bytes | None, owner: str
) -> None:
    home = partition_for(owner, PARTITIONS)
    check(topic, [(key, value)], home)
    with pytest.raises(Refusal, match="does not belong to partition") as refused:
        check(topic, [(key, value)], (home + 1) % PARTITIONS)
    assert refused.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (TRANSACTION_STATE, None, b"x"),
        (TRANSACTION_STATE, b"", b"x"),
        (TRANSACTION_STATE, b"\0\5", b"x"),
        (TRANSACTION_STATE, TRANSACTION.key, b""),
        (TRANSACTION_STATE, TRANSACTION.key, b"\0\1broken"),
        (TRANSACTION_STATE, TRANSACTION.key, b"\0\x09"),
        (TRANSACTION_STATE, OFFSET.key, OFFSET.value),
        (CONSUMER_OFFSETS, None, b"x"),
        (CONSUMER_OFFSETS, b"\x7f\0", b"x"),
        (CONSUMER_OFFSETS, OFFSET.key, b"\0\4\1"),
        (CONSUMER_OFFSETS, OFFSET.key, b"\x7f\xff"),
    ],
)
def test_record_that_the_coordinator_cannot_load_is_refused_with_its_batch(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    for partition in range(PARTITIONS):
        with pytest.raises(Refusal) as refused:
            check(topic, [(key, value)], partition)
        assert refused.value.error is ErrorCode.INVALID_RECORD
        assert refused.value.message


def test_batch_with_too_many_records_or_control_records_is_refused() -> None:
    home = partition_for("g", PARTITIONS)
    check(CONSUMER_OFFSETS, [(OFFSET.key, OFFSET.value)] * RECORDS_MAX, home)
    with pytest.raises(Refusal, match="at most 100 data records"):
        check(CONSUMER_OFFSETS, [(OFFSET.key, OFFSET.value)] * (RECORDS_MAX + 1), home)
    marker = end_txn_marker(producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, timestamp=NOW_MS)
    with pytest.raises(Refusal, match="at most 100 data records"):
        check_client_append(CONSUMER_OFFSETS, home, PARTITIONS, marker)


def test_other_topics_are_not_checked() -> None:
    check("t", [(None, b"x")], 0)
