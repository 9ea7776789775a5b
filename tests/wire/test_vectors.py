"""Byte vectors of Kafka's generated serializers: messages are encoded to these bytes, and decoded from them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.protocol.batch import (
    ControlType,
    build_batch,
    control_type,
    end_txn_marker,
    iter_batches,
    iter_records,
    parse_end_txn_marker,
    verify_crc,
)
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.records.producer_snapshot import ProducerEntry, ProducerSnapshot
from odradek.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

NOW = 1_700_000_000_000

INIT = InitProducerIdRequest("my-txn", 60_000)
ADD_CLASSIC = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="my-txn",
    v3_and_below_producer_id=1000,
    v3_and_below_producer_epoch=5,
    v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0, 3])],
)
ADD_VERIFY = AddPartitionsToTxnRequest(
    [AddPartitionsToTxnTransaction("my-txn", 1000, 5, verify_only=True, topics=[AddPartitionsToTxnTopic("t", [0, 3])])]
)
ADD_OFFSETS = AddOffsetsToTxnRequest("my-txn", 1000, 5, "g")
END = EndTxnRequest("my-txn", 1000, 5, committed=True)
MARKERS = WriteTxnMarkersRequest([WritableTxnMarker(1000, 6, True, [WritableTxnMarkerTopic("t", [0])], 7, 2)])
COMMIT_CLASSIC = TxnOffsetCommitRequest(
    "my-txn",
    "g",
    1000,
    5,
    topics=[TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, 42, -1, None)])],
)
COMMIT = TxnOffsetCommitRequest(
    "my-txn",
    "g",
    1000,
    5,
    topics=[TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, 42, 7, None)])],
)
API_VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersion(18, 0, 4)],
    supported_features=[SupportedFeatureKey("transaction.version", 0, 2)],
    finalized_features_epoch=9,
    finalized_features=[FinalizedFeatureKey("transaction.version", 2, 2)],
)
TXN_EMPTY = TransactionLogValue(
    producer_id=1000,
    producer_epoch=5,
    transaction_timeout_ms=60_000,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=NOW,
    transaction_start_timestamp_ms=-1,
)


def ongoing(previous: int = -1, following: int = -1, client_version: int = 0) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=1000,
        previous_producer_id=previous,
        next_producer_id=following,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema("t", [0, 3])],
        transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=NOW,
        client_transaction_version=client_version,
    )


ONGOING_V1 = "00000000000003e800050000ea6001020274030000000000000003000000018bcfe568000000018bcfe56800"
OFFSET = OffsetCommitValue(42, 7, "", NOW)
TOPIC_ID = UUID(int=(1 << 64) + 2)
SNAPSHOT = ProducerSnapshot(0xA0B6840A, [ProducerEntry(1000, 5, 9, 41, 4, NOW, 7, -1)])

# message, versions, bytes. The bytes of log records do not include the type and version number before them.
MESSAGES: list[tuple[Message, tuple[int, ...], str]] = [
    (TransactionLogKey("my-txn"), (0,), "00066d792d74786e"),
    (TXN_EMPTY, (0,), "00000000000003e800050000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    (TXN_EMPTY, (1,), "00000000000003e800050000ea6000000000018bcfe56800ffffffffffffffff00"),
    (
        ongoing(),
        (0,),
        "00000000000003e800050000ea6001000000010001740000000200000000000000030000018bcfe568000000018bcfe56800",
    ),
    (ongoing(), (1,), ONGOING_V1 + "00"),
    (ongoing(1000, -1, 2), (1,), ONGOING_V1 + "02000800000000000003e802020002"),
    (ongoing(1000, 2000, 2), (1,), ONGOING_V1 + "03000800000000000003e8010800000000000007d002020002"),
    (OffsetCommitKey("g", "t", 3), (1,), "000167000174" + "00000003"),
    (OffsetCommitValue(42, -1, "", NOW), (0, 2), "000000000000002a00000000018bcfe56800"),
    (OffsetCommitValue(42, -1, "", NOW), (1,), "000000000000002a00000000018bcfe56800ffffffffffffffff"),
    (OFFSET, (3,), "000000000000002a0000000700000000018bcfe56800"),
    (OFFSET, (4,), "000000000000002a00000007010000018bcfe5680000"),
    (
        OffsetCommitValue(42, 7, "", NOW, topic_id=TOPIC_ID),
        (4,),
        "000000000000002a00000007010000018bcfe56800" + "01001000000000000000010000000000000002",
    ),
    (GroupMetadataKey("g"), (2,), "000167"),
    (
        GroupMetadataValue("consumer", 1, None, None, NOW),
        (3,),
        "0008636f6e73756d657200000001ffffffff0000018bcfe5680000000000",
    ),
    (INIT, (0, 1), "00066d792d74786e0000ea60"),
    (INIT, (2,), "076d792d74786e0000ea6000"),
    (INIT, (3, 4, 5), "076d792d74786e0000ea60ffffffffffffffffffff00"),
    (INIT, (6,), "076d792d74786e0000ea60ffffffffffffffffffff000000"),
    (ADD_CLASSIC, (0,), "00066d792d74786e00000000000003e8000500000001000174000000020000000000000003"),
    (ADD_CLASSIC, (3,), "076d792d74786e00000000000003e800050202740300000000000000030000"),
    (ADD_VERIFY, (4, 5), "02076d792d74786e00000000000003e8000501020274030000000000000003000000"),
    (ADD_OFFSETS, (0,), "00066d792d74786e00000000000003e80005000167"),
    (ADD_OFFSETS, (3,), "076d792d74786e00000000000003e80005026700"),
    (END, (0,), "00066d792d74786e00000000000003e8000501"),
    (END, (3, 5), "076d792d74786e00000000000003e800050100"),
    (EndTxnResponse(), (0,), "000000000000"),
    (EndTxnResponse(), (4,), "00000000000000"),
    (EndTxnResponse(producer_id=1000, producer_epoch=6), (5,), "00000000000000000000000003e8000600"),
    (MARKERS, (1,), "0200000000000003e8000601020274020000000000000000070000"),
    (MARKERS, (2,), "0200000000000003e800060102027402000000000000000007020000"),
    (
        COMMIT_CLASSIC,
        (0,),
        "00066d792d74786e00016700000000000003e80005000000010001740000000100000000000000000000002affff",
    ),
    (
        COMMIT,
        (3, 4, 5),
        "076d792d74786e026700000000000003e80005ffffffff01000202740200000000000000000000002a0000000700000000",
    ),
    (
        API_VERSIONS,
        (3,),
        (
            "000002001200000004000000000003001a02147472616e73616374696f6e2e76657273696f6e00000002000108"
            "0000000000000009021a02147472616e73616374696f6e2e76657273696f6e0002000200"
        ),
    ),
    (
        SNAPSHOT,
        (1,),
        "a0b6840a0000000100000000000003e80005000000090000000000000029000000040000018bcfe5680000000007ffffffffffffffff",
    ),
]
CASES = [
    pytest.param(message, version, vector, id=f"{message.NAME}-v{version}-{index}")
    for index, (message, versions, vector) in enumerate(MESSAGES)
    for version in versions
]

# Kafka writes these key versions with another schema of the same layout.
KEY_VERSION = {"OffsetCommitKey": 0, "GroupMetadataKey": 0}

COMMIT_MARKER = (
    "000000000000000000000042ffffffff0240d514e90030000000000000018bcfe568000000018bcfe5680000000000000003e80005"
    "ffffffff000000012000000008000000010c00000000000700"
)
ABORT_MARKER = (
    "000000000000000000000042ffffffff02b4ebc2a10030000000000000018bcfe568000000018bcfe5680000000000000003e80005"
    "ffffffff000000012000000008000000000c00000000000700"
)
DATA_BATCH = (
    "000000000000000000000043ffffffff024662694b0010000000010000018bcfe568000000018bcfe5680100000000000003e80005"
    "000000000000000210000000026b027600100002020104763200"
)


@pytest.mark.parametrize(("message", "version", "vector"), CASES)
def test_encoded_message_equals_kafkas_bytes(message: Message, version: int, vector: str) -> None:
    version = KEY_VERSION.get(message.NAME, version)
    assert encode(message, version).hex() == vector
    # A field that a version does not have is decoded as its default, so the test compares the bytes again.
    assert encode(decode(type(message), version, bytes.fromhex(vector)), version).hex() == vector


@pytest.mark.parametrize(("commit", "vector"), [(True, COMMIT_MARKER), (False, ABORT_MARKER)])
def test_marker_batch_equals_kafkas_bytes(commit: bool, vector: str) -> None:
    batch = end_txn_marker(producer_id=1000, producer_epoch=5, coordinator_epoch=7, commit=commit, timestamp=NOW)
    assert batch.hex() == vector
    assert len(batch) == 78
    [(header, view)] = iter_batches(batch)
    assert verify_crc(batch, 0, header)
    assert (header.is_control, header.is_transactional, header.base_sequence, header.last_sequence) == (
        True,
        True,
        -1,
        -1,
    )
    [record] = iter_records(view, max_decompressed_bytes=0)
    assert control_type(record.key) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert parse_end_txn_marker(record.value) == 7


def test_data_batch_equals_kafkas_bytes() -> None:
    batch = build_batch(
        [(b"k", b"v", NOW, ()), (None, b"v2", NOW + 1, ())],
        producer_id=1000,
        producer_epoch=5,
        base_sequence=0,
        transactional=True,
    )
    assert batch.hex() == DATA_BATCH
    [(header, view)] = iter_batches(batch)
    assert verify_crc(batch, 0, header)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(view, max_decompressed_bytes=0)] == [
        (0, NOW, b"k", b"v"),
        (1, NOW + 1, None, b"v2"),
    ]
