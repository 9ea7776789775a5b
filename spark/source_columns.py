"""Columns of the source, and their conversion from records to Arrow without an object per record."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.protocol.batch import NO_SEQUENCE, SEQUENCE_MAX
from odradek.protocol.errors import Malformed
from odradek.protocol.record import read_headers
from odradek.spark.source_records import Body, find_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from odradek.client import TopicPartition
    from odradek.protocol.batch import BatchHeader
    from odradek.spark.source_records import Records

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Columns of Spark's own Kafka source with their types."""
HEADERS: Final = {"headers": "array<struct<key:string,value:binary>>"}
"""Column that the option `includeHeaders` adds."""
TRANSACTIONS: Final = {
    "producerId": "bigint",
    "producerEpoch": "int",
    "sequence": "int",
    "isTransactional": "boolean",
    "isControl": "boolean",
    "transactionOutcome": "string",
    "controlType": "string",
    "coordinatorEpoch": "int",
}
"""Columns that the option `includeTransactions` adds."""
HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "sequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "transactionOutcome": pa.string(),
    "controlType": pa.string(),
    "coordinatorEpoch": pa.int32(),
}
MICROSECONDS: Final = 1_000
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // MICROSECONDS
"""Maximum timestamp that a column of Spark can have, in milliseconds."""


class Outcome(IntEnum):
    """Outcome of the transaction of a batch. OPEN: its marker was not in the log when the batch was read."""

    NONE = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


class Marker(NamedTuple):
    """Content of a control batch. `coordinator_epoch` is None if the batch is no end of a transaction."""

    kind: str
    coordinator_epoch: int | None


class Batch(NamedTuple):
    """A batch whose records become rows. `marker` is None for a batch with data."""

    body: Body
    outcome: Outcome = Outcome.NONE
    marker: Marker | None = None

    @property
    def header(self) -> BatchHeader:
        """Header of the batch."""
        return self.body.header


class Layout(NamedTuple):
    """Columns of a query."""

    headers: bool
    transactions: bool

    @property
    def fields(self) -> dict[str, str]:
        """Names and types of all columns."""
        return {**COLUMNS, **(HEADERS if self.headers else {}), **(TRANSACTIONS if self.transactions else {})}

    @property
    def ddl(self) -> str:
        """Columns in the syntax of SQL. There, the meaning of `timestamp` depends on `spark.sql.timestampType`."""
        return ", ".join(
            f"{name} {'timestamp_ltz' if kind == 'timestamp' else kind}" for name, kind in self.fields.items()
        )


def columns(
    batches: Sequence[Batch], partition: TopicPartition, layout: Layout, start: int, end: int
) -> pa.RecordBatch | None:
    """Convert the records with offsets from `start` until before `end`. Return None if there are none.

    Raise Malformed if a batch is damaged.
    """
    records = find_records([each.body for each in batches]).within(start, end)
    count = len(records.offset)
    if not count:
        return None
    types = np.array([each.header.timestamp_type for each in batches], np.int32)
    content = pa.py_buffer(records.content)
    arrays: dict[str, pa.Array] = {
        "key": _contents(content, records.key_begin, records.key_end, records.key_null),
        "value": _contents(content, records.value_begin, records.value_end, records.value_null),
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        "partition": pa.array(np.full(count, partition.partition, np.int32)),
        "offset": pa.array(records.offset),
        "timestamp": _timestamps(records),
        "timestampType": pa.array(types[records.batch]),
    }
    if layout.headers:
        arrays["headers"] = _headers(records)
    if layout.transactions:
        arrays |= _transactions(batches, records)
    schema = pa.schema([(name, ARROW_TYPES[name]) for name in arrays])
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)


def _contents(
    content: pa.Buffer, begin: NDArray[np.int64], end: NDArray[np.int64], null: NDArray[np.bool_]
) -> pa.Array:
    """Copy spans of a buffer into a column.

    The spans and the gaps between them are an array over the buffer, without a copy. `take` then copies the spans.
    """
    count = len(begin)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = begin
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), content])
    return spans.take(pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None))


def _timestamps(records: Records) -> pa.Array:
    if records.timestamp_ms.max() > TIMESTAMP_MS_MAX or records.timestamp_ms.min() < -TIMESTAMP_MS_MAX:
        raise Malformed(f"a timestamp exceeds {TIMESTAMP_MS_MAX} ms, the range of Spark")
    microseconds = pa.py_buffer(records.timestamp_ms * MICROSECONDS)
    return pa.Array.from_buffers(ARROW_TYPES["timestamp"], len(records.offset), [None, microseconds])


def _headers(records: Records) -> pa.Array:
    """Return the headers, null without headers, as in Spark's own source."""
    count = len(records.offset)
    sizes = records.header_count
    names: list[str] = []
    values: list[bytes | None] = []
    for index in np.flatnonzero(sizes).tolist():
        found, position = read_headers(records.content, int(records.value_end[index]), int(records.end[index]))
        if position != records.end[index]:
            raise Malformed(f"record at offset {records.offset[index]}: bytes follow the headers")
        for name, value in found:
            names.append(name)
            values.append(value)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(HEADER)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ARROW_TYPES["headers"], mask=pa.array(sizes == 0))


def _transactions(batches: Sequence[Batch], records: Records) -> dict[str, pa.Array]:
    """Return the columns of TRANSACTIONS. Numbers are null where the batch has none."""
    of = records.batch
    headers = [each.header for each in batches]
    ids = np.array([each.producer_id for each in headers], np.int64)[of]
    epochs = np.array([each.producer_epoch for each in headers], np.int32)[of]
    base = np.array([each.base_sequence for each in headers], np.int64)[of]
    sequences = ((base + records.offset_delta) % (SEQUENCE_MAX + 1)).astype(np.int32)
    outcomes = pa.array([each.name.lower() for each in Outcome])
    kinds = pa.array([each.marker.kind if each.marker else None for each in batches], pa.string())
    coordinators = pa.array([each.marker.coordinator_epoch if each.marker else None for each in batches], pa.int32())
    return {
        "producerId": pa.array(ids, mask=ids < 0),
        "producerEpoch": pa.array(epochs, mask=epochs < 0),
        "sequence": pa.array(sequences, mask=base == NO_SEQUENCE),
        "isTransactional": pa.array(np.array([each.is_transactional for each in headers])[of]),
        "isControl": pa.array(np.array([each.is_control for each in headers])[of]),
        "transactionOutcome": outcomes.take(pa.array(np.array([each.outcome for each in batches], np.int64)[of])),
        "controlType": kinds.take(pa.array(of)),
        "coordinatorEpoch": coordinators.take(pa.array(of)),
    }
