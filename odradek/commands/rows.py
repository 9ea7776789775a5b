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


def row_of(result: Any) -> Row:
    """Convert a dataclass of the client into a row with the same field names."""
    return {field.name: plain(getattr(result, field.name)) for field in dataclasses.fields(result)}


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
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "client_id": transaction.client_id,
        "address": transaction.address,
        "coordinator": transaction.coordinator,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": started,
        "since": None if started is None else moment(started),
        "times_out": None if started is None else _deadline(started, transaction),
        "in_doubt": transaction.in_doubt,
        "open_for_ms": None if started is None else int(time.time() * 1000) - started,
        "partitions": [str(partition) for partition in transaction.partitions],
    }


def _deadline(started_ms: int, transaction: TransactionDescription) -> str:
    return "never" if transaction.never_times_out else moment(started_ms + transaction.timeout_ms)


def blocked_row(blocked: BlockedPartition) -> Row:
    """Convert a partition, and the transaction that holds back its last stable offset, into a row.

    Fields of the transaction are left out if they are not known.
    """
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
                "address": blocked.producer.address,
            }
        else:
            transaction = transaction_row(blocked.transaction)
            names = ("transactional_id", "client_id", "address", "state", "since", "times_out", "open_for_ms")
            row |= {name: transaction[name] for name in names}
    return row | {"condition": blocked.state.value}


def moment(timestamp_ms: int) -> str:
    """Return a timestamp as text in UTC, with milliseconds."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
