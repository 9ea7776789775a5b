"""Records of `__transaction_state`: the expected bytes were printed by Kafka's own serializers."""

import pytest

from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.records import decode_key, decode_value, encode_key, encode_value, tombstone
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import Malformed
from odradek.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import ShardRecord

TS = 1_700_000_000_000
T03 = {TopicPartition("t", 0): None, TopicPartition("t", 3): None}


def txn(state: TxnState, **changes: object) -> Transaction:
    values: dict[str, object] = {
        "producer_id": 1000,
        "producer_epoch": 5,
        "timeout_ms": 60_000,
        "update_ms": TS,
        "start_ms": -1 if state is TxnState.EMPTY else TS,
        "partitions": {} if state is TxnState.EMPTY else T03,
    }
    return Transaction("my-txn", state=state, **(values | changes))  # type: ignore[arg-type]


V1_ONGOING = "000100000000000003e800050000ea6001020274030000000000000003000000018bcfe568000000018bcfe56800"
V1_PREPARE_COMMIT = "000100000000000003e800050000ea6002020274030000000000000003000000018bcfe568000000018bcfe56800"
VECTORS = [
    (txn(TxnState.EMPTY), 0, "000000000000000003e800050000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    (txn(TxnState.EMPTY), 1, "000100000000000003e800050000ea6000000000018bcfe56800ffffffffffffffff00"),
    (
        txn(TxnState.ONGOING),
        0,
        "000000000000000003e800050000ea6001000000010001740000000200000000000000030000018bcfe568000000018bcfe56800",
    ),
    (txn(TxnState.ONGOING), 2, V1_ONGOING + "00"),
    (
        txn(TxnState.ONGOING, prev_producer_id=1000, client_version=2),
        2,
        V1_ONGOING + "02000800000000000003e802020002",
    ),
    (
        txn(
            TxnState.PREPARE_COMMIT,
            prev_producer_id=1000,
            client_version=2,
            next_producer_id=2000,
            next_producer_epoch=0,
        ),
        1,
        V1_PREPARE_COMMIT + "03000800000000000003e8010800000000000007d002020002",
    ),
    (
        txn(TxnState.ONGOING, prev_producer_id=1000, client_version=2, next_producer_id=2000, next_producer_epoch=0),
        2,
        V1_ONGOING + "04000800000000000003e8010800000000000007d00202000203020000",
    ),
    (
        txn(
            TxnState.PREPARE_COMMIT,
            prev_producer_id=1000,
            client_version=2,
            next_producer_id=1000,
            next_producer_epoch=102,
        ),
        0,  # a value with a next identity has version 1 at every level
        V1_PREPARE_COMMIT + "04000800000000000003e8010800000000000003e80202000203020066",
    ),
]


@pytest.mark.parametrize(("transaction", "level", "expected"), VECTORS)
def test_values_equal_kafkas_bytes(transaction: Transaction, level: int, expected: str) -> None:
    encoded = encode_value(transaction, level)
    assert encoded.hex() == expected
    assert decode_value("my-txn", encoded) == transaction


def test_key_equals_kafkas_bytes() -> None:
    assert encode_key("my-txn").hex() == "000000066d792d74786e"
    assert decode_key(encode_key("é-😀")) == "é-😀"
    assert tombstone("my-txn") == ShardRecord(bytes.fromhex("000000066d792d74786e"), None)


def test_version_0_omits_fields_that_it_lacks() -> None:
    full = txn(TxnState.ONGOING, prev_producer_id=1, client_version=2, last_producer_epoch=4)
    decoded = decode_value("my-txn", encode_value(full, 0))
    assert decoded == txn(TxnState.ONGOING) == full.as_replayed(feature_level=0)
    kept = decode_value("my-txn", encode_value(full, 1))
    assert kept == full.as_replayed(feature_level=1)


def test_prepared_transaction_without_partitions_has_an_empty_array() -> None:
    encoded = encode_value(txn(TxnState.PREPARE_ABORT, partitions={}), 1)
    assert encoded[17:18] == b"\x01"  # an empty compact array; b"\x00" means null


def test_key_of_an_unknown_version_is_none_and_value_of_an_unknown_version_is_malformed() -> None:
    assert decode_key(b"\x00\x01\x00\x00") is None
    for version in (-1, 2, 32_767):
        with pytest.raises(Malformed, match=f"version {version}"):
            decode_value("x", version.to_bytes(2, "big", signed=True) + b"\x00\x00")


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00", bytes.fromhex(V1_ONGOING)[:-5]])
def test_damaged_values_are_malformed(value: bytes) -> None:
    with pytest.raises(Malformed):
        decode_value("x", value)


def test_unknown_status_is_malformed() -> None:
    encoded = bytearray(encode_value(txn(TxnState.EMPTY), 0))
    encoded[16] = 99
    with pytest.raises(Malformed, match="99"):
        decode_value("x", bytes(encoded))


@pytest.mark.parametrize("version", [-(2**15), -129, 128, 300, 2**15 - 1])
def test_client_version_that_no_marker_can_carry_is_malformed(version: int) -> None:
    encoded = encode_value(txn(TxnState.PREPARE_ABORT, client_version=version), 2)
    with pytest.raises(Malformed, match=f"client_transaction_version {version},"):
        decode_value("x", encoded)


@pytest.mark.parametrize("version", [-128, 0, 2, 127])
def test_client_version_that_a_marker_can_carry_is_decoded(version: int) -> None:
    encoded = encode_value(txn(TxnState.PREPARE_ABORT, client_version=version), 2)
    assert decode_value("x", encoded).client_version == version
    request = WriteTxnMarkersRequest([WritableTxnMarker(1, 0, transaction_version=version)])
    assert decode(WriteTxnMarkersRequest, 2, encode(request, 2)) == request


@pytest.mark.parametrize(
    ("state", "next_id", "next_epoch"),
    [
        (TxnState.EMPTY, 2000, 0),
        (TxnState.COMPLETE_COMMIT, 2000, 3),
        (TxnState.COMPLETE_ABORT, 2000, -1),
        (TxnState.ONGOING, -1, 0),
        (TxnState.ONGOING, 2000, -2),
        (TxnState.PREPARE_ABORT, -1, 7),
    ],
)
def test_next_identity_that_no_client_can_have_is_malformed(state: TxnState, next_id: int, next_epoch: int) -> None:
    encoded = encode_value(txn(state, next_producer_id=next_id, next_producer_epoch=next_epoch), 2)
    with pytest.raises(Malformed, match="next"):
        decode_value("x", encoded)


def test_prepare_record_of_kafka_without_a_next_epoch_has_epoch_0() -> None:
    encoded = bytes.fromhex(V1_PREPARE_COMMIT + "01010800000000000007d0")
    assert decode_value("my-txn", encoded).client_identity == (2000, 0)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00\x05ab"])
def test_record_without_a_complete_key_is_malformed(key: bytes | None) -> None:
    with pytest.raises(Malformed):
        decode_key(key)
