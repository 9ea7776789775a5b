"""The data source `odradek` of PySpark: a source and a sink for batch and streaming queries."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from odradek.client import ClientError, TopicPartition
from odradek.spark import transaction
from odradek.spark.columns import check_columns
from odradek.spark.errors import BatchFailed, InvalidInput
from odradek.spark.exactly_once import Batch, write_exactly_once
from odradek.spark.options import Mode, sink_options
from odradek.spark.outcome import Failure, Outcome, ReadPartition, failure_of
from odradek.spark.records import CHECKSUM_MODULUS, COLUMNS, SinkRow, checksum_of, target_of
from odradek.spark.source_options import check_stream, source_options
from odradek.spark.source_reader import SourceReader, SourceStreamReader, check_limits, check_schema, layout_of
from odradek.spark.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from odradek.client import ProducerIdentity
    from odradek.spark.options import SinkOptions

BATCH_ID = "batchid"
"""Option of a batch query: the id of the batch in the ledger. Without it, a repeated query writes the rows again."""
STREAM_OPTIONS = frozenset({"checkpointlocation", "queryname", "path"})
"""Options that Spark itself adds to those of a streaming query."""


@dataclass
class StagedRows(WriterCommitMessage):
    """Rows of one task, which the driver writes. The task itself writes nothing, so it may run several times."""

    rows: list[SinkRow]
    query_id: str | None
    run_id: str | None


class OdradekDataSource(DataSource):
    """A source of topics, and a sink that writes each batch in one transaction.

    Register it with `spark.dataSource.register`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "odradek"

    def schema(self) -> str:
        """Return the columns of the source. Raise InvalidInput if an option is invalid."""
        return layout_of(source_options(dict(self.options))).ddl

    def reader(self, schema: StructType) -> SourceReader:
        """Return the reader of a batch query."""
        options = source_options(dict(self.options))
        check_schema(options, schema)
        return SourceReader(options)

    def streamReader(self, schema: StructType) -> SourceStreamReader:  # noqa: N802  Spark's name
        """Return the reader of a streaming query."""
        given = dict(self.options)
        options = source_options(given)
        check_schema(options, schema)
        check_stream(given)
        check_limits(given)
        return SourceStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> StagedWriter:
        """Return the writer of a batch query. Raise InvalidInput if the mode is not `append`."""
        if overwrite:
            raise InvalidInput("mode overwrite: a topic cannot be overwritten; use mode append")
        batch_id = self.options.get(BATCH_ID)
        if batch_id is not None and not (batch_id.isascii() and batch_id.isdigit()):
            raise InvalidInput(f"option batchId: {batch_id!r} is no number")
        return StagedWriter(self._sink(schema, frozenset({BATCH_ID})), None if batch_id is None else int(batch_id))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StagedStreamWriter:  # noqa: N802  Spark's name
        """Return the writer of a streaming query."""
        return StagedStreamWriter(self._sink(schema, STREAM_OPTIONS))

    def _sink(self, schema: StructType, others: frozenset[str]) -> SinkOptions:
        sink = sink_options(dict(self.options), others)
        if sink.mode is not Mode.TRANSACTION:
            raise InvalidInput("option mode: format odradek has no mode 2pc; use write_batch, or mode txn")
        check_columns(schema, sink.topic)
        return sink


class StagedWriter(DataSourceWriter):
    """Writer of a batch query. `commit` runs in the driver, and sends the rows of all tasks."""

    def __init__(self, sink: SinkOptions, batch_id: int | None) -> None:
        self._sink = sink
        self._batch_id = batch_id

    def write(self, iterator: Iterator[Row]) -> StagedRows:
        """Return the rows of a task."""
        return staged(iterator, self._sink)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write the rows of all tasks in one transaction."""
        write_staged(self._sink, messages, self._batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the tasks wrote nothing, and `commit` aborts its own transaction."""


class StagedStreamWriter(DataSourceStreamWriter):
    """Writer of a streaming query. `commit` runs in the driver, and sends the rows of all tasks."""

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Row]) -> StagedRows:
        """Return the rows of a task."""
        return staged(iterator, self._sink)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Write the rows of all tasks in one transaction, unless the ledger has the batch."""
        write_staged(self._sink, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Do nothing: the tasks wrote nothing, and `commit` aborts its own transaction."""


def staged(rows: Iterable[Row], sink: SinkOptions) -> StagedRows:
    """Convert the rows of a task."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    run_id = None if context is None else context.getLocalProperty("spark.jobGroup.id")
    with utc():
        return StagedRows([sink_row(row, sink.topic) for row in rows], query_id, run_id)


@contextmanager
def utc() -> Iterator[None]:
    """Let this process have the time zone UTC.

    pyspark converts the timestamp of a row to the local time of its worker, without the fold (PEP 495). So two times
    one hour apart are equal when daylight saving time ends. In UTC, no local time repeats.
    """
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def sink_row(row: Row, topic: str | None) -> SinkRow:
    """Convert a row. Raise InvalidInput if it has no topic."""
    fields = {name: row[name] for name in COLUMNS if name in row}
    fields["topic"] = topic if topic is not None else fields.get("topic")
    if fields["topic"] is None:
        raise InvalidInput("column topic: a row has no topic; fill the column or use the option topic")
    moment: datetime | None = fields.get("timestamp")
    return SinkRow(
        fields["topic"],
        fields.get("partition"),
        _bytes(fields.get("key")),
        _bytes(fields.get("value")),
        [each and {"key": each["key"], "value": each["value"]} for each in fields.get("headers") or ()],
        None if moment is None else round(moment.timestamp() * 1_000_000) // 1000,
    )


def _bytes(value: str | bytes | bytearray | None) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return None if value is None else bytes(value)


def write_staged(sink: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Write the rows of all tasks in one transaction, unless the ledger has the batch.

    Raises:
        BatchFailed: A task failed, so that the rows are incomplete, or the cluster failed.
    """
    parts = [each for each in messages if isinstance(each, StagedRows)]
    if len(parts) != len(messages):
        raise BatchFailed(f"{len(messages) - len(parts)} of {len(messages)} tasks failed")
    if not parts:
        return  # no task: the batch has no rows, and nothing names its query
    first = parts[0]
    rows = [row for part in parts for row in part.rows]

    def job(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        return asyncio.run(_send(sink, identity, rows))

    batch = Batch(batch_id, first.query_id, first.run_id or f"batch-{uuid.uuid4()}")
    write_exactly_once(job, sink, batch, keep_session=False)  # Spark calls `commit` in one of several processes


async def _send(sink: SinkOptions, identity: ProducerIdentity, rows: Sequence[SinkRow]) -> Outcome:
    """Write all rows from this process, and return the same reports as the tasks of `write_batch`."""
    checksum = sum(map(checksum_of, rows)) % CHECKSUM_MODULUS
    outcome = Outcome(read=[ReadPartition(0, len(rows), checksum)])
    by_target: dict[TopicPartition, list[SinkRow]] = {}
    try:
        async with transaction.connection(sink) as cluster:
            for row in rows:
                topic = row.topic or ""
                target = target_of(row, len((await cluster.topic(topic)).partitions))
                by_target.setdefault(TopicPartition(topic, target), []).append(row)
            writer = Writer(cluster, identity)
            await writer.write(by_target, alone=True)
            outcome.written += writer.reports()
    except ClientError as error:
        outcome.failures.append((failure_of(error), str(error)))
    except ValueError as error:
        outcome.failures.append((Failure.INVALID, str(error)))
    return outcome
