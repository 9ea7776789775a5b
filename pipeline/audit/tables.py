"""Tables of the audit: their columns for Spark and Arrow, and conversions from and to the values of the core.

A DataFrame has one struct column per table, and each row has a value in one of them. So one pass over the logs, and
one pass over the transactional ids, produce all tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from odradek.client import TopicPartition
from odradek.client.consumer.transitions import TOMBSTONE, Transition
from odradek.pipeline.audit.evidence import Event, EventKind, LogRange
from odradek.protocol.txn_state import STATE_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from odradek.pipeline.audit.judgment import Judgment, Violation

Columns = dict[str, str]
PARTITIONS: Final = "array<struct<topic:string,partition:int>>"
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    PARTITIONS: pa.list_(pa.struct({"topic": pa.string(), "partition": pa.int32()})),
}

TRANSITION: Final[Columns] = {
    "transactional_id": "string",
    "log_partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "state": "string",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "next_producer_id": "bigint",
    "next_producer_epoch": "int",
    "client_version": "int",
    "timeout_ms": "bigint",
    "start_ms": "bigint",
    "update_ms": "bigint",
    "partitions": PARTITIONS,
}
EVENT: Final[Columns] = {
    "topic": "string",
    "partition": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "kind": "string",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "first_ms": "bigint",
    "last_ms": "bigint",
    "batches": "bigint",
    "coordinator_epoch": "int",
}
LOG: Final[Columns] = {
    "topic": "string",
    "partition": "int",
    "start": "bigint",
    "end": "bigint",
    "first_gap": "bigint",
    "last_gap": "bigint",
    "missing": "bigint",
    "compacted_below": "bigint",
    "judged_below": "bigint",
    "batches": "bigint",
    "latest_ms": "bigint",
    "first_marker_ms": "bigint",
    "defect": "string",
}
DECISION: Final[Columns] = {
    "transactional_id": "string",
    "commit": "boolean",
    "status": "string",
    "reason": "string",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "client_version": "int",
    "log_partition": "int",
    "offset": "bigint",
    "has_prepare": "boolean",
    "partitions": PARTITIONS,
    "begin_ms": "bigint",
    "prepare_ms": "bigint",
    "complete_ms": "bigint",
}
MARKER: Final[Columns] = {"transactional_id": "string", **EVENT, "fit": "string", "decision_offset": "bigint"}
VIOLATION: Final[Columns] = {
    "kind": "string",
    "transactional_id": "string",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "detail": "string",
}
OPEN_DATA: Final[Columns] = {"transactional_id": "string", **EVENT, "state": "string"}

READ: Final = {"transition": TRANSITION, "event": EVENT, "log": LOG}
"""Tables that are read from the logs."""
JUDGED: Final = {"decision": DECISION, "marker": MARKER, "violation": VIOLATION, "open_data": OPEN_DATA}
"""Tables that the judgment produces."""


def ddl(tables: Mapping[str, Columns]) -> str:
    """Return the schema of a DataFrame with one struct column per table."""
    return ", ".join(
        f"{table} struct<{', '.join(f'`{name}`:{kind}' for name, kind in columns.items())}>"
        for table, columns in tables.items()
    )


def record_batch(tables: Mapping[str, Columns], rows: Iterable[tuple[str, dict[str, Any]]]) -> pa.RecordBatch:
    """Return a batch of rows. Each row is the name of its table and the values of its columns."""
    columns: dict[str, list[dict[str, Any] | None]] = {table: [] for table in tables}
    for table, values in rows:
        for name, column in columns.items():
            column.append(values if name == table else None)
    types = [pa.struct({name: _ARROW[kind] for name, kind in described.items()}) for described in tables.values()]
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(tables))


def transition_row(transition: Transition) -> tuple[str, dict[str, Any]]:
    values = transition._asdict()
    values["state"] = transition.state_name
    values["partitions"] = _partitions(transition.partitions)
    return "transition", values


def event_row(event: Event) -> tuple[str, dict[str, Any]]:
    return "event", _event(event)


def log_row(log: LogRange) -> tuple[str, dict[str, Any]]:
    return "log", log._asdict()


def transition_of(values: Mapping[str, Any]) -> Transition:
    """Convert a row of the table `transition`."""
    partitions = tuple(TopicPartition(each["topic"], each["partition"]) for each in values["partitions"])
    state = None if values["state"] == TOMBSTONE else STATE_BY_NAME[values["state"]]
    return Transition(**{**values, "state": state, "partitions": partitions})


def event_of(values: Mapping[str, Any]) -> Event:
    """Convert a row of the table `event`."""
    return Event(**{**values, "kind": EventKind[values["kind"]]})


def judged_rows(judgment: Judgment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of all tables of one transactional id."""
    for judged in judgment.decisions:
        decision = judged.decision
        values = {name: getattr(decision, name) for name in DECISION if hasattr(decision, name)}
        values |= {"status": judged.status.value, "reason": judged.reason}
        yield "decision", values | {"partitions": _partitions(decision.partitions)}
    for marker in judgment.markers:
        values = {**_event(marker.marker), "fit": marker.fit.value, "decision_offset": marker.decision_offset}
        yield "marker", {"transactional_id": marker.transactional_id, **values}
    for violation in judgment.violations:
        yield violation_row(violation)
    for data in judgment.open_data:
        yield "open_data", {"transactional_id": data.transactional_id, **_event(data.data), "state": data.state}


def violation_row(violation: Violation) -> tuple[str, dict[str, Any]]:
    return "violation", {**violation._asdict(), "kind": violation.kind.value}


def _event(event: Event) -> dict[str, Any]:
    return {**event._asdict(), "kind": event.kind.name}


def _partitions(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [each._asdict() for each in partitions]
