"""Records of `__transaction_state`, decoded: the transitions of transactional ids. This module is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.consumer.decode import DECOMPRESSED_BYTES_MAX
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.batch import iter_records
from odradek.protocol.codec import decode
from odradek.protocol.errors import Malformed
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from odradek.protocol.txn_state import TxnState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.protocol.batch import BatchHeader

VERSION_BYTES: Final = 2
KEY_VERSION: Final = 0
PREPARED: Final = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
COMPLETE: Final = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
COMMITS: Final = (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
TOMBSTONE: Final = "Tombstone"
"""Name of the state of a record without a value."""


class Transition(NamedTuple):
    """A record of `__transaction_state`. `log_partition` and `offset` are its place; times are in ms since 1970.

    `state` is None for a tombstone: the coordinator has removed the transactional id.
    """

    transactional_id: str
    log_partition: int
    offset: int
    timestamp_ms: int
    state: TxnState | None
    producer_id: int = -1
    producer_epoch: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    client_version: int = 0
    timeout_ms: int = 0
    start_ms: int = -1
    update_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def state_name(self) -> str:
        """Name of the state in Kafka's tools, or TOMBSTONE."""
        return TOMBSTONE if self.state is None else self.state.kafka_name


def transitions_of(partition: int, header: BatchHeader, batch: memoryview) -> Iterable[Transition]:
    """Decode a batch of `__transaction_state`. Records with an unknown key version are left out.

    Raise Malformed if a record cannot be decoded.
    """
    for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
        key = record.key
        if key is None or len(key) < VERSION_BYTES:
            raise Malformed(f"the record at offset {record.offset} of {TRANSACTION_STATE}-{partition} has no key")
        if int.from_bytes(key[:VERSION_BYTES], "big", signed=True) != KEY_VERSION:
            continue
        transactional_id = decode(TransactionLogKey, KEY_VERSION, key[VERSION_BYTES:]).transactional_id
        if record.value is None:
            yield Transition(transactional_id, partition, record.offset, record.timestamp, None)
            continue
        value = _value(record.value)
        yield Transition(
            transactional_id,
            partition,
            record.offset,
            record.timestamp,
            _state(value.transaction_status),
            value.producer_id,
            value.producer_epoch,
            value.next_producer_id,
            value.next_producer_epoch,
            value.client_transaction_version,
            value.transaction_timeout_ms,
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            tuple(
                TopicPartition(entry.topic, index)
                for entry in value.transaction_partitions or ()
                for index in entry.partition_ids
            ),
        )


def _value(data: bytes) -> TransactionLogValue:
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        raise Malformed(f"TransactionLogValue has the unknown version {version}")
    return decode(TransactionLogValue, version, data[VERSION_BYTES:])


def _state(number: int) -> TxnState:
    try:
        return TxnState(number)
    except ValueError as unknown:
        raise Malformed(f"TransactionLogValue has the unknown transaction_status {number}") from unknown
