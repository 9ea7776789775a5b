"""The tasks of a batch, which run in Spark's Python workers: assign partitions to rows, and write rows."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext

from odradek.client import ClientError, Cluster, TopicPartition
from odradek.spark.outcome import Failure, Outcome, ReadPartition, WrittenPartition, failure_of
from odradek.spark.records import CHECKSUM_MODULUS, COLUMNS, SinkRow, checksum_of, target_of
from odradek.spark.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from odradek.client import ProducerIdentity
    from odradek.spark.options import SinkOptions

PLACED_COLUMNS: Final = "target int, source int, position bigint, note string"
"""Columns that `assign` adds to a row.

`target` is the partition index. `source` and `position` restore the order of the rows after the shuffle. A row with a
`note` is no row of the batch: the note is a report of the task, as JSON.
"""
REPORT_SCHEMA: Final = "note string"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Arguments of `assign`: partition counts of the topics that the driver knows. Tasks look up the others."""

    options: SinkOptions
    partitions: Mapping[str, int] = field(default_factory=dict)


def assign(batches: Iterable[pa.RecordBatch], assignment: Assignment) -> Iterator[pa.RecordBatch]:
    """Add the columns PLACED_COLUMNS to rows. After the rows, yield a note with their number and checksum."""
    source = current_task().partitionId()
    counts = dict(assignment.partitions)
    rows = checksum = 0
    schema = None
    for batch in batches:
        schema = batch.schema
        records = rows_of(batch)
        try:
            if missing := unknown_topics(records, counts):
                counts |= asyncio.run(_partition_counts(assignment.options, missing))
            targets = [target_of(row, counts[row.topic or ""]) for row in records]
        except (ClientError, ValueError) as error:
            drain(batches)
            yield _placed_note(schema, source, failure_note(failure_of(error), str(error)))
            return
        checksum = (checksum + sum(map(checksum_of, records))) % CHECKSUM_MODULUS
        positions = range(rows, rows + len(records))
        rows += len(records)
        yield _placed(batch, targets, source, positions, [None] * len(records))
    if schema is not None:
        yield _placed_note(schema, source, json.dumps({"read": asdict(ReadPartition(source, rows, checksum))}))


def drain(batches: Iterable[pa.RecordBatch]) -> None:
    """Read what a task has not read of its input, before the task ends.

    Spark writes the input of a Python worker and reads its output in one thread. If a worker exits before it received
    its input, that thread can find the connection reset when it writes, and then loses the report of the task.
    """
    for _ in batches:
        pass


def rows_of(batch: pa.RecordBatch) -> list[SinkRow]:
    """Convert an Arrow batch with the columns COLUMNS, and possibly others after them."""
    return list(map(SinkRow, *(batch.column(index).to_pylist() for index in range(len(COLUMNS)))))


def unknown_topics(records: Iterable[SinkRow], counts: Mapping[str, int]) -> list[str]:
    """Return the topics whose partition count is unknown. Raise ValueError if a row has no topic."""
    names = dict.fromkeys(row.topic for row in records)
    if None in names:
        raise ValueError("column topic: a row has no topic; fill the column or use the option topic")
    return [name for name in names if name is not None and name not in counts]


async def partition_counts(cluster: Cluster, names: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of topics. Raise NotFound if one does not exist."""
    return {name: len((await cluster.topic(name)).partitions) for name in names}


async def _partition_counts(options: SinkOptions, names: Iterable[str]) -> dict[str, int]:
    async with Cluster(options.bootstrap, options.settings) as cluster:
        return await partition_counts(cluster, names)


def _placed(
    batch: pa.RecordBatch, targets: list[int], source: int, positions: Iterable[int], notes: list[str | None]
) -> pa.RecordBatch:
    added = {
        "target": pa.array(targets, pa.int32()),
        "source": pa.array([source] * len(targets), pa.int32()),
        "position": pa.array(positions, pa.int64()),
        "note": pa.array(notes, pa.string()),
    }
    names = [*batch.schema.names, *added]
    return pa.RecordBatch.from_arrays([*batch.columns, *added.values()], names=names)


def _placed_note(schema: pa.Schema, source: int, note: str) -> pa.RecordBatch:
    empty = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], names=schema.names)
    return _placed(empty, [0], source, [-1], [note])


def failure_note(kind: Failure, problem: str) -> str:
    """Return the report of a failure."""
    return json.dumps({"failure": [kind.name, problem]})


def write(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, identity: ProducerIdentity
) -> Iterator[pa.RecordBatch]:
    """Write rows in the transaction of `identity`. Yield the reports of this task and those that the rows contain.

    A second attempt of a task does not write. Its sequence numbers would begin at 0 again, so that the broker could
    take its batches for duplicates of the first attempt. The driver repeats the batch with a new epoch.
    """
    context = current_task()
    if context.attemptNumber() > 0:
        problem = (
            f"task {context.partitionId()} was interrupted, and its attempt {context.attemptNumber()} did not write"
        )
        notes = [failure_note(Failure.DOUBTFUL, problem)]
    else:
        notes = asyncio.run(_write(batches, options, identity))
    drain(batches)
    yield pa.RecordBatch.from_arrays([pa.array(notes, pa.string())], names=["note"])


async def _write(batches: Iterable[pa.RecordBatch], options: SinkOptions, identity: ProducerIdentity) -> list[str]:
    notes: list[str] = []
    try:
        async with Cluster(options.bootstrap, options.settings) as cluster:
            writer = Writer(cluster, identity)
            for batch in batches:
                found = batch.column("note").to_pylist()
                notes += [note for note in found if note is not None]
                targets = batch.column("target").to_pylist()
                rows = [row for row in zip(rows_of(batch), targets, found, strict=True) if row[2] is None]
                groups = itertools.groupby(rows, lambda row: TopicPartition(row[0].topic or "", row[1]))
                await writer.write({key: [row[0] for row in group] for key, group in groups})
            await writer.verify()
    except ClientError as error:
        return [*notes, failure_note(failure_of(error), str(error))]
    return [*notes, *(json.dumps({"written": asdict(each)}) for each in writer.reports())]


def outcome_of(notes: Iterable[str]) -> Outcome:
    """Decode the reports of all tasks."""
    outcome = Outcome()
    for note in notes:
        fields: dict[str, Any] = json.loads(note)
        if "written" in fields:
            row = fields["written"]
            outcome.written.append(WrittenPartition(**{**row, "target": TopicPartition(*row["target"])}))
        elif "read" in fields:
            outcome.read.append(ReadPartition(**fields["read"]))
        else:
            kind, problem = fields["failure"]
            outcome.failures.append((Failure[kind], problem))
    return outcome


def current_task() -> TaskContext:
    """Return the task of Spark in which this function runs."""
    context = TaskContext.get()
    assert context is not None, "this function runs in a task of Spark"
    return context
