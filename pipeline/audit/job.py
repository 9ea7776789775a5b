"""Read the logs with Spark, judge each transactional id in one task, and write the tables."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from odradek.client import TopicPartition
from odradek.pipeline.audit import tables
from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.evidence import LogRange
from odradek.pipeline.audit.judge import judge
from odradek.pipeline.audit.judgment import Context, Kind, Status, Violation
from odradek.pipeline.audit.result import VIOLATIONS_MAX, AuditResult
from odradek.pipeline.audit.statistics import statistics_of
from odradek.protocol.internal_topics import CLUSTER_METADATA, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    from odradek.pipeline.audit.evidence import PartitionScan
    from odradek.pipeline.audit.sources import Listed, Source
    from odradek.pipeline.audit.statistics import Statistics

ROWS_PER_BATCH: Final = 10_000
"""Maximum rows per Arrow batch that a task produces."""
REPORT: Final = "report.html"
"""File name of the report in the output directory."""
TASKS_PER_CORE: Final = 2
"""Tasks per core that read partitions, so that a long partition delays the job less."""


@dataclass(frozen=True, slots=True)
class Frames:
    """DataFrames with the tables READ and JUDGED, and the partitions that were read."""

    read: DataFrame
    judged: DataFrame
    logs: Sequence[LogRange]


def run(spark: SparkSession, source: Source, out: Path | None) -> AuditResult:
    """Carry out an audit (`odradek.pipeline.audit.audit`)."""
    with judged_logs(spark, source) as frames:
        damaged = [
            Violation(Kind.DAMAGED, "", -1, -1, log.topic, log.partition, log.end, log.defect)
            for log in frames.logs
            if log.defect
        ]
        result = _result(frames.judged, frames.logs, damaged)
        if out is None:
            return result
        _write(frames.read, frames.judged, damaged, out)
        return _reported(result, statistics_of(frames.read, frames.judged, frames.logs), out / REPORT)


@contextmanager
def judged_logs(spark: SparkSession, source: Source) -> Iterator[Frames]:
    """Read all logs, and judge all transactional ids. The result is cached within the `with` block."""
    rows = [(json.dumps(each),) for each in source.partitions() if each["topic"] != CLUSTER_METADATA]
    tasks = max(1, min(len(rows), TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    listed = spark.createDataFrame(rows, "source string").repartition(tasks)
    read = listed.mapInArrow(_reader(source.scan), tables.ddl(tables.READ)).persist()
    try:
        logs = [LogRange(**row["log"].asDict()) for row in read.where("log is not null").select("log").collect()]
        judging = _judging(_context(logs))
        judged = _by_owner(read).groupBy("owner").applyInArrow(judging, tables.ddl(tables.JUDGED)).persist()
        try:
            yield Frames(read, judged, logs)
        finally:
            judged.unpersist()
    finally:
        read.unpersist()


def _reported(result: AuditResult, statistics: Statistics, path: Path) -> AuditResult:
    from odradek.pipeline.audit.report import page  # the import of matplotlib takes about a second

    path.write_text(page(result, statistics), encoding="utf-8")
    return replace(result, report=path)


def _reader(scan: Callable[[Listed], tuple[PartitionScan, LogRange]]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the function of the tasks that read partitions."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                found, log = scan(json.loads(text))
                rows = chain(
                    map(tables.transition_row, found.transitions),
                    map(tables.event_row, found.events),
                    [tables.log_row(log)],
                )
                while part := list(islice(rows, ROWS_PER_BATCH)):
                    yield tables.record_batch(tables.READ, part)

    return read


def _context(logs: Sequence[LogRange]) -> Context:
    states = {log.partition: log for log in logs if log.topic == TRANSACTION_STATE}
    is_whole = bool(states) and len(states) == max(states) + 1 and all(log.is_whole for log in states.values())
    data = {TopicPartition(log.topic, log.partition): log for log in logs if log.topic != TRANSACTION_STATE}
    return Context(data, states, is_whole)


def _by_owner(read: DataFrame) -> DataFrame:
    """Return the transitions and events with the column `owner`, which one task judges together.

    It is the transactional id, or the producer id of events whose transactional id is not in the log.
    """
    transitions = read.where("transition is not null").select("transition")
    identity = F.explode(F.array("transition.producer_id", "transition.next_producer_id"))
    owners = (
        transitions.select(F.col("transition.transactional_id").alias("id"), identity.alias("producer_id"))
        .where("producer_id >= 0")
        .distinct()
    )
    events = read.where("event is not null").select("event", F.col("event.producer_id").alias("producer_id"))
    named = F.when(F.col("id").isNotNull(), F.concat(F.lit("id "), "id"))
    unnamed = F.concat(F.lit("producer "), F.col("producer_id").cast("string"))
    return transitions.select(
        F.concat(F.lit("id "), "transition.transactional_id").alias("owner"),
        "transition",
        F.lit(None).cast(events.schema["event"].dataType).alias("event"),
    ).unionByName(
        events.join(owners, "producer_id", "left").select(
            F.coalesce(named, unnamed).alias("owner"),
            F.lit(None).cast(transitions.schema["transition"].dataType).alias("transition"),
            "event",
        )
    )


def _judging(context: Context) -> Callable[[pa.Table], pa.Table]:
    """Return the function of the tasks that judge transactional ids."""

    def judge_owner(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        found = [each for each in table.column("transition").to_pylist() if each is not None]
        transitions = sorted(map(tables.transition_of, found), key=lambda each: each.offset)
        events = [tables.event_of(each) for each in table.column("event").to_pylist() if each is not None]
        transactional_id = transitions[0].transactional_id if transitions else ""
        rows = tables.judged_rows(judge(transactional_id, transitions, events, context))
        return pa.Table.from_batches([tables.record_batch(tables.JUDGED, rows)])

    return judge_owner


def _result(judged: DataFrame, logs: Sequence[LogRange], damaged: Sequence[Violation]) -> AuditResult:
    columns = {"status": "decision.status", "reason": "decision.reason", "fit": "marker.fit", "kind": "violation.kind"}
    groups = judged.groupBy(*[F.col(column).alias(name) for name, column in columns.items()]).count().collect()
    statuses, reasons, fits, kinds = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for group in groups:
        statuses[group["status"]] += group["count"]
        fits[group["fit"]] += group["count"]
        kinds[group["kind"]] += group["count"]
        if group["status"] == Status.UNDECIDABLE.value:
            reasons[group["reason"]] += group["count"]
    named = (
        judged.where(F.col("violation").isNotNull() | (F.col("marker.fit") == Fit.BY_OPERATOR.value))
        .select("violation", "marker")
        .orderBy(F.col("violation").isNull(), "violation", "marker")
        .limit(VIOLATIONS_MAX)
        .collect()
    )
    violations = [row["violation"].asDict() for row in named if row["violation"] is not None]
    return AuditResult(
        decisions={status: statuses[status.value] for status in Status if statuses[status.value]},
        reasons=dict(reasons),
        markers={fit: fits[fit.value] for fit in Fit if fits[fit.value]},
        violations=[*damaged, *(Violation(**{**each, "kind": Kind(each["kind"])}) for each in violations)],
        violation_count=len(damaged) + sum(kinds[kind.value] for kind in Kind),
        operator_aborts=[_place(row["marker"]) for row in named if row["marker"] is not None],
        partitions=sum(log.topic != TRANSACTION_STATE for log in logs),
        batches=sum(log.batches for log in logs),
        missing=sum(log.missing for log in logs),
    )


def _place(marker: Row) -> str:
    """Describe a marker that an operator may have written."""
    name = marker["transactional_id"] or "an unknown transactional id"
    return (
        f"{marker['topic']}-{marker['partition']} at offset {marker['first_offset']}: {name}, "
        f"producer {marker['producer_id']}/{marker['producer_epoch']}"
    )


def _write(read: DataFrame, judged: DataFrame, damaged: Sequence[Violation], out: Path) -> None:
    spark = read.sparkSession
    violations = judged.where("violation is not null").select("violation.*")
    extra = [tuple(values.values()) for _, values in map(tables.violation_row, damaged)]
    whole = violations.unionByName(spark.createDataFrame(extra, violations.schema))
    for name, frame in {
        "transitions": read.where("transition is not null").select("transition.*"),
        "decisions": judged.where("decision is not null").select("decision.*"),
        "markers": judged.where("marker is not null").select("marker.*"),
        "violations": whole,
        "open_data": judged.where("open_data is not null").select("open_data.*"),
        "logs": read.where("log is not null").select("log.*"),
    }.items():
        frame.coalesce(1).write.mode("overwrite").parquet(str(out / name))
