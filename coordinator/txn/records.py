"""Encode and decode the records of `__transaction_state` (Kafka's TransactionLogKey and TransactionLogValue)."""

from functools import lru_cache
from typing import Final

from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import Partitions, Transaction
from odradek.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import Malformed
from odradek.protocol.hashing import CACHED_LENGTH_MAX
from odradek.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import ShardRecord

KEY_VERSION: Final = 0
VERSION_BYTES: Final = 2
CACHED_KEYS_MAX: Final = 10_000
"""Maximum encoded keys in the cache. An id writes three records per transaction, so its key is used often."""
CLIENT_VERSION_RANGE: Final = range(-(2**7), 2**7)
"""Values of `client_transaction_version` that a WriteTxnMarkers request can carry: int8 there, int16 in the log."""
_STATES_WITH_NEXT_IDENTITY: Final = (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
_KEY_PREFIX: Final = KEY_VERSION.to_bytes(VERSION_BYTES, "big")


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id: an int16 record type 0, which is also the version, and the id."""
    return (_cached_key if len(transactional_id) <= CACHED_LENGTH_MAX else _new_key)(transactional_id)


def _new_key(transactional_id: str) -> bytes:
    return _KEY_PREFIX + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


_cached_key: Final = lru_cache(maxsize=CACHED_KEYS_MAX)(_new_key)


def encode_value(txn: Transaction, feature_level: int) -> bytes:
    """Return the value of a transaction: an int16 version and the fields.

    The version is 1 (flexible) from transaction.version 1 on. Version 0 has no fields for the previous producer id, the
    next identity and the client version; they are left out, as in Kafka. A value with a next identity has version 1 at
    every level: without it, a kept transaction could not be ended after a downgrade.
    """
    version = 1 if feature_level >= 1 or txn.has_next_identity else 0
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state.value,
        transaction_partitions=None if txn.state is TxnState.EMPTY else _grouped(txn.partitions),
        transaction_last_update_timestamp_ms=txn.update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = txn.prev_producer_id
        value.next_producer_id = txn.next_producer_id
        # Epoch 0 of a prepared transaction is left out, as Kafka's brokers before KIP-939 do.
        if not (txn.state.is_prepared and txn.next_producer_epoch == 0):
            value.next_producer_epoch = txn.next_producer_epoch
        value.client_transaction_version = txn.client_version
    return version.to_bytes(VERSION_BYTES, "big") + encode(value, version)


def to_record(txn: Transaction, feature_level: int) -> ShardRecord:
    """Return the record that sets the state of the id to `txn`."""
    return ShardRecord(encode_key(txn.transactional_id), encode_value(txn, feature_level), memo=txn)


def tombstone(transactional_id: str) -> ShardRecord:
    """Return the record that removes the id."""
    return ShardRecord(encode_key(transactional_id), None)


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id; None if the version of the key is unknown.

    Raises:
        Malformed: There is no key, or it cannot be decoded.
    """
    if key is None:
        raise Malformed("the record of __transaction_state has no key")
    if _version(key, "key") != KEY_VERSION:
        return None
    return decode(TransactionLogKey, KEY_VERSION, key[VERSION_BYTES:]).transactional_id


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Return the transaction.

    Raises:
        Malformed: The value has an unknown version, cannot be decoded, or has a field that no marker can carry.
    """
    version = _version(value, "value")
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        raise Malformed(f"TransactionLogValue has the unknown version {version}")
    decoded = decode(TransactionLogValue, version, value[VERSION_BYTES:])
    try:
        state = TxnState(decoded.transaction_status)
    except ValueError as unknown:
        raise Malformed(
            f"TransactionLogValue has the unknown transaction_status {decoded.transaction_status}"
        ) from unknown
    if state is TxnState.PREPARE_EPOCH_FENCE:  # a transition within one decision, which no broker writes
        raise Malformed(f"TransactionLogValue has the transaction_status {state.value}, which is never in the log")
    if decoded.client_transaction_version not in CLIENT_VERSION_RANGE:
        raise Malformed(
            f"TransactionLogValue has the client_transaction_version {decoded.client_transaction_version}, "
            "which no marker can carry"
        )
    next_epoch = decoded.next_producer_epoch
    if decoded.next_producer_id != NO_PRODUCER_ID:
        next_epoch = 0 if next_epoch == NO_PRODUCER_EPOCH else next_epoch
        if state not in _STATES_WITH_NEXT_IDENTITY or next_epoch < 0:
            raise Malformed(
                f"TransactionLogValue with the transaction_status {state.value} has the next identity "
                f"{decoded.next_producer_id}/{next_epoch}, which no client can have"
            )
    elif next_epoch != NO_PRODUCER_EPOCH:
        raise Malformed(f"TransactionLogValue has the next_producer_epoch {next_epoch} without a next_producer_id")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=decoded.producer_id,
        producer_epoch=decoded.producer_epoch,
        timeout_ms=decoded.transaction_timeout_ms,
        state=state,
        partitions=_flat(decoded.transaction_partitions or []),
        start_ms=decoded.transaction_start_timestamp_ms,
        update_ms=decoded.transaction_last_update_timestamp_ms,
        prev_producer_id=decoded.previous_producer_id,
        next_producer_id=decoded.next_producer_id,
        next_producer_epoch=next_epoch,
        client_version=decoded.client_transaction_version,
    )


def _version(data: bytes, part: str) -> int:
    if len(data) < VERSION_BYTES:
        raise Malformed(f"the {part} of a record of __transaction_state has {len(data)} bytes, too few for its version")
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


def _grouped(partitions: Partitions) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def _flat(topics: list[PartitionsSchema]) -> Partitions:
    return {TopicPartition(entry.topic, partition): None for entry in topics for partition in entry.partition_ids}
