"""A sink of `odradek.spark` whose tasks run in the process of the test, one after the other, without Spark."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odradek.client import Cluster, committed_offsets, create_topic, list_transactions
from odradek.spark import Step, resolve_sink, task_writes, tasks
from odradek.spark.exactly_once import Batch, write_exactly_once
from odradek.spark.ledger import LedgerEntry, decoded
from odradek.spark.options import SinkOptions, sink_options
from odradek.spark.records import COLUMNS, SinkRow
from odradek.spark.task_writes import reports_of
from odradek.spark.tasks import Assignment, outcome_of
from odradek.spark.two_phase import write_two_phase
from tests.support.committed_records import await_markers, committed_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from odradek.client import ProducerIdentity
    from odradek.spark.outcome import Outcome
    from odradek.spark.task_transactions import TaskReports

PARTITIONS = 3
TASKS = 4
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES = (pa.string(), pa.int32(), pa.binary(), pa.binary(), pa.list_(HEADER), pa.int64())
serial = itertools.count()


class Killed(BaseException):
    """Ends a driver without any clean-up."""


class SinkRig:
    """A sink with its topic, and drivers that the test kills."""

    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch, mode: str = "txn") -> None:
        self.bootstrap = bootstrap
        self.mode = mode
        self.topic = f"steps-{next(serial)}"
        self._monkeypatch = monkeypatch
        asyncio.run(self._create())

    async def _create(self) -> None:
        async with Cluster(self.bootstrap) as cluster:
            await create_topic(cluster, self.topic, partitions=PARTITIONS)

    def options(self, **changed: str) -> SinkOptions:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "sink": self.topic,
            "topic": self.topic,
            "mode": self.mode,
        }
        return sink_options({**given, **changed})

    def job(
        self, rows: Sequence[SinkRow], attempt: int = 0
    ) -> Callable[[ProducerIdentity, Mapping[str, int]], Outcome]:
        """Run all tasks of a batch one after the other: two before the shuffle, one per target partition after it."""

        def run(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
            assignment = Assignment(self.options(), dict(counts))
            placed: list[dict[str, Any]] = []
            for source in range(2):
                self.as_task(source)
                batches = [arrow(rows[source::2])] if rows[source::2] else []
                placed += [row for batch in tasks.assign(batches, assignment) for row in batch.to_pylist()]
            placed.sort(key=lambda row: (row["topic"] or "", row["target"], row["source"], row["position"]))
            notes: list[str] = []
            for target in range(PARTITIONS):
                part = [row for row in placed if row["target"] == target]
                self.as_task(target, attempt)
                fields = [*map(pa.field, COLUMNS, TYPES), pa.field("target", pa.int32()), pa.field("note", pa.string())]
                batch = pa.RecordBatch.from_pylist(part, schema=pa.schema(fields))
                for report in tasks.write([batch] if part else [], self.options(), identity):
                    notes += report.column("note").to_pylist()
            return outcome_of(notes)

        return run

    def task_job(
        self, rows: Sequence[SinkRow], task_count: int = TASKS, attempt: int = 0
    ) -> Callable[[Mapping[int, ProducerIdentity], Mapping[str, int]], TaskReports]:
        """Run all tasks of a batch in mode 2pc one after the other."""

        def run(identities: Mapping[int, ProducerIdentity], counts: Mapping[str, int]) -> TaskReports:
            notes: list[str] = []
            for task in range(task_count):
                self.as_task(task, attempt)
                part = rows[task::task_count]
                batches = [arrow(part)] if part else []
                for report in task_writes.write_own(batches, self.options(), identities, counts):
                    notes += report.column("note").to_pylist()
            return reports_of(notes)

        return run

    def as_task(self, partition: int, attempt: int = 0) -> None:
        context = SimpleNamespace(partitionId=lambda: partition, attemptNumber=lambda: attempt)
        for module in (tasks, task_writes):
            self._monkeypatch.setattr(module, "current_task", lambda: context)

    def write(self, batch_id: int | None, rows: Sequence[SinkRow], run: str, kill_at: Step | None = None) -> None:
        def on_step(step: Step) -> None:
            if step is kill_at:
                raise Killed

        batch = Batch(batch_id, "query", run)
        if self.mode == "2pc":
            write_two_phase(self.task_job(rows), self.options(), batch, TASKS, on_step)
        else:
            write_exactly_once(self.job(rows), self.options(), batch, on_step)

    def write_job(
        self,
        job: Callable[[Mapping[int, ProducerIdentity], Mapping[str, int]], TaskReports],
        batch_id: int = 0,
        run: str = "run",
        tasks: int = TASKS,
        on_step: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        """Write a batch in mode 2pc whose tasks are `job`."""
        write_two_phase(job, self.options(), Batch(batch_id, "query", run), tasks, on_step)

    def resolve(self) -> tuple[int, int]:
        """Resolve the abandoned sink. Return the numbers of committed and aborted transactions."""
        return resolve_sink({"kafka.bootstrap.servers": self.bootstrap, "sink": self.topic})

    def visible(self) -> list[bytes]:
        options = self.options()
        ids = [options.transactional_id, *(options.task_id(task) for task in range(TASKS if self.mode == "2pc" else 0))]
        records = committed_records(self.bootstrap, self.topic, *ids)
        return [record.value or b"" for record in asyncio.run(records)]

    def ledger_entry(self) -> LedgerEntry:
        async def fetch() -> LedgerEntry:
            async with Cluster(self.bootstrap) as cluster:
                options = self.options()
                # Apache Kafka leaves a first pending offset out, so `require_stable` is not enough.
                await await_markers(cluster, options.transactional_id)
                offsets = await committed_offsets(cluster, options.transactional_id)
                return decoded(offsets[options.ledger])

        return asyncio.run(fetch())


def arrow(rows: Sequence[SinkRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def rows_of(first: int, count: int, topic: str) -> list[SinkRow]:
    return [
        SinkRow(topic, None, b"%d" % number if number % 3 else None, b"%06d" % number, [], None)
        for number in range(first, first + count)
    ]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def open_transactions(rig: SinkRig) -> list[str]:
    """Return the transactional ids of the sink whose transaction is ongoing."""

    async def fetch() -> list[str]:
        async with Cluster(rig.bootstrap) as cluster:
            listed = (await list_transactions(cluster, ["Ongoing"])).rows
            prefix = rig.options().transactional_id
            return [row.transactional_id for row in listed if row.transactional_id.startswith(prefix)]

    return asyncio.run(fetch())


def thread(function: Callable[[], None]) -> None:
    """Run a function in another thread, because this one runs an event loop. Raise its exception."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()
