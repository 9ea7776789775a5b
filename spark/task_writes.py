"""The tasks of a batch in mode 2pc: each writes its rows in a transaction of its own, to all their partitions."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odradek.client import ClientError, Cluster, TopicPartition
from odradek.spark.outcome import Failure, WrittenPartition, failure_of
from odradek.spark.records import target_of
from odradek.spark.task_transactions import TaskReports
from odradek.spark.tasks import current_task, drain, failure_note, partition_counts, rows_of, unknown_topics
from odradek.spark.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from odradek.client import ProducerIdentity
    from odradek.spark.options import SinkOptions
    from odradek.spark.records import SinkRow


def write_own(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    identities: Mapping[int, ProducerIdentity],
    counts: Mapping[str, int],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of this task in the transaction of its identity. Yield the reports of the task.

    A task without an identity does not write: the driver repeats the batch with more identities. A second attempt does
    not write either, as in mode txn. Each reads its input: if that fails again, the job ends with the reason.
    """
    context = current_task()
    task, number = context.partitionId(), context.attemptNumber()
    notes = []
    if number > 0:
        notes.append(
            failure_note(Failure.DOUBTFUL, f"task {task} was interrupted, and its attempt {number} did not write")
        )
    elif task in identities:
        notes += asyncio.run(_write(batches, options, task, identities[task], dict(counts)))
    drain(batches)
    notes.append(json.dumps({"task": task}))
    yield pa.RecordBatch.from_arrays([pa.array(notes, pa.string())], names=["note"])


async def _write(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    task: int,
    identity: ProducerIdentity,
    counts: dict[str, int],
) -> list[str]:
    """Write all rows, and return the reports.

    A fenced task is no sign of another query: the transactional id of the driver alone decides on that.
    """
    try:
        async with Cluster(options.bootstrap, options.settings) as cluster:
            writer = Writer(cluster, identity)
            for batch in batches:
                rows = rows_of(batch)
                counts |= await partition_counts(cluster, unknown_topics(rows, counts))
                groups: dict[TopicPartition, list[SinkRow]] = {}
                for row in rows:
                    topic = row.topic or ""
                    groups.setdefault(TopicPartition(topic, target_of(row, counts[topic])), []).append(row)
                await writer.write(groups)
            await writer.verify()
    except (ClientError, ValueError) as error:
        kind = failure_of(error)
        return [failure_note(Failure.DOUBTFUL if kind is Failure.FENCED else kind, str(error))]
    return [json.dumps({"writer": task, "written": [asdict(each) for each in writer.reports()]})]


def reports_of(notes: Iterable[str]) -> TaskReports:
    """Decode the reports of all tasks."""
    reports = TaskReports()
    for note in notes:
        fields: dict[str, Any] = json.loads(note)
        if "task" in fields:
            reports.tasks.append(fields["task"])
        elif "failure" in fields:
            kind, problem = fields["failure"]
            reports.failures.append((Failure[kind], problem))
        elif fields["written"]:
            reports.written[fields["writer"]] = [
                WrittenPartition(**{**row, "target": TopicPartition(*row["target"])}) for row in fields["written"]
            ]
    return reports
