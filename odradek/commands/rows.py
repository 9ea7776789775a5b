"""Convert results of the client into rows for JSON and tables."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from odradek.client import BlockedPartition, TransactionDescription

Row = dict[str, Any]

PARTITION_NAMES = {"internal": "is_internal", "log_start": "log_start_offset", "log_end": "log_end_offset"}
KAFKA_NAMES: dict[str, dict[str, str]] = {
    "BrokerDescription": {"fenced": "is_fenced"},
    "ClusterStatus": {"controller": "controller_id", "voters": "current_voters"},
    "CreatedTopic": {"name": "topic", "partitions": "partition_count"},
    "FeatureLevel": {
        "min_version": "supported_min_version",
        "max_version": "supported_max_version",
        "finalized": "finalized_version_level",
    },
    "GroupDescription": {"epoch": "group_epoch", "assignor": "assignor_name"},
    "GroupMember": {"epoch": "member_epoch", "host": "client_host"},
    "GroupPartition": {"committed": "committed_offset", "host": "client_host"},
    "PartitionDescription": PARTITION_NAMES,
    "PlannedOffset": {"committed": "committed_offset", "new": "new_offset"},
    "ProducerListing": {"address": "client_host", "transaction_start": "current_txn_start_offset"},
    "Reassignment": {"adding": "adding_replicas", "removing": "removing_replicas"},
    "TopicListing": {"name": "topic", "internal": "is_internal", "partitions": "partition_count"},
    "TransactionListing": {"state": "transaction_state", "address": "client_host"},
}
"""Names of the output by class and field of the client, where both differ. The output has Kafka's names."""


def row_of(result: Any) -> Row:
    """Convert a dataclass of the client into a row with the names of the output."""
    names = KAFKA_NAMES.get(type(result).__name__, {})
    return {
        names.get(field.name, field.name): plain(getattr(result, field.name)) for field in dataclasses.fields(result)
    }


def plain(value: Any) -> Any:
    """Convert dataclasses into rows and UUIDs into text, also inside of lists and dictionaries."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return row_of(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, UUID) else value


def transaction_row(transaction: TransactionDescription) -> Row:
    """Convert a transaction into a row with its start and its time-out as text, and its age in milliseconds."""
    started = transaction.started_ms
    return {
        "transactional_id": transaction.transactional_id,
        "transaction_state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "client_id": transaction.client_id,
        "client_host": transaction.address,
        "coordinator": transaction.coordinator,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": started,
        "since": None if started is None else moment(started),
        "times_out": None if started is None else _deadline(started, transaction),
        "in_doubt": transaction.in_doubt,
        "transaction_duration_ms": None if started is None else int(time.time() * 1000) - started,
        "topic_partitions": [str(partition) for partition in transaction.partitions],
    }


def _deadline(started_ms: int, transaction: TransactionDescription) -> str:
    return "never" if transaction.never_times_out else moment(started_ms + transaction.timeout_ms)


OF_BLOCKING_TRANSACTION = (
    "transactional_id", "client_id", "client_host", "transaction_state", "since", "times_out",
    "transaction_duration_ms",
)  # fmt: skip
"""Fields of a transaction in the row of a partition that it holds back."""


def blocked_row(blocked: BlockedPartition) -> Row:
    """Convert a partition, and what is known of the transaction that holds back its last stable offset, into a row."""
    row: Row = {
        "topic": blocked.topic,
        "partition": blocked.partition,
        "last_stable_offset": blocked.last_stable_offset,
        "high_watermark": blocked.high_watermark,
        "held_back": blocked.high_watermark - blocked.last_stable_offset,
    }
    if blocked.producer is not None:
        row |= {"producer_id": blocked.producer.producer_id, "producer_epoch": blocked.producer.producer_epoch}
        if blocked.transaction is None:
            row |= {
                "since": moment(blocked.producer.last_timestamp),
                "client_id": blocked.producer.client_id,
                "client_host": blocked.producer.address,
            }
        else:
            transaction = transaction_row(blocked.transaction)
            row |= {name: transaction[name] for name in OF_BLOCKING_TRANSACTION}
    return row | {"condition": blocked.state.value}


def moment(timestamp_ms: int) -> str:
    """Return a timestamp as text in UTC, with milliseconds. Outside of the years 1 to 9999, return its number."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # such as a timestamp that a producer has set in microseconds
        return str(timestamp_ms)
