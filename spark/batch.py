"""Write a micro-batch exactly once, by all tasks of a Spark job in parallel."""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from odradek.spark.columns import ROW_SCHEMA, normalized
from odradek.spark.errors import Doubtful, InvalidInput, SinkError
from odradek.spark.exactly_once import Batch, ignore, write_exactly_once
from odradek.spark.ledger import fingerprint
from odradek.spark.options import Mode, sink_options
from odradek.spark.task_writes import reports_of, write_own
from odradek.spark.tasks import PLACED_COLUMNS, REPORT_SCHEMA, Assignment, assign, outcome_of, write
from odradek.spark.two_phase import write_two_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from odradek.client import ProducerIdentity
    from odradek.spark.exactly_once import OnStep
    from odradek.spark.options import SinkOptions
    from odradek.spark.outcome import Outcome
    from odradek.spark.task_transactions import TaskReports

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
PROCESS_RUN_ID: Final = f"process-{uuid.uuid4()}"
"""Run id of batches outside of streaming queries."""


def write_batch(df: DataFrame, batch_id: int, options: Mapping[str, str], *, on_step: OnStep = ignore) -> None:
    """Write a batch exactly once. Do nothing if the ledger shows that it is visible.

    In mode `txn`, the batch is one transaction. In mode `2pc`, each task has a transaction of its own, without a
    shuffle. They are committed one by one, after the ledger has decided on all of them.

    It is made for `foreachBatch`. Outside of it, `batch_id` must increase with each batch of a sink.

    Args:
        df: Rows with the columns key, value, headers, topic, partition and timestamp. Only `value` is required, and
            `topic` if the options do not have it.
        batch_id: Id of the batch. A repeated batch has the same id.
        options: `kafka.bootstrap.servers`, `sink`, `topic`, `mode`, `ledgerTopic` and other `kafka.*`.
        on_step: Called after each step, for progress and tests.

    Raises:
        InvalidInput: An option, a column, a topic or a record is invalid.
        SinkInUse: Another query uses the sink name.
        CheckpointMismatch: The sink was written by a query with another checkpoint.
        BatchFailed: The batch failed in all attempts.
        ClientError: The cluster is not reachable, or refuses the query.
    """
    sink = sink_options(options)
    rows = normalized(df, sink.topic)
    query_id, run_id = query_of(df)
    batch = Batch(batch_id, query_id, run_id, None if query_id is None else plan_of(df, query_id, batch_id))

    def job(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        return run_job(rows, sink, identity, counts)

    def task_job(identities: Mapping[int, ProducerIdentity], counts: Mapping[str, int]) -> TaskReports:
        return run_task_job(rows, sink, identities, counts)

    if sink.mode is Mode.TWO_PHASE:
        write_two_phase(task_job, sink, batch, df.sparkSession.sparkContext.defaultParallelism, on_step)
    else:
        write_exactly_once(job, sink, batch, on_step)


def query_of(df: DataFrame) -> tuple[str | None, str]:
    """Return the query id and the run id of the streaming query that runs this batch.

    Outside of a streaming query, return None and the run id of this process.

    Raises:
        InvalidInput: The session does not name it. Batches of another checkpoint would then be skipped.
    """
    try:
        context = df.sparkSession.sparkContext
    except Exception as error:
        problem = "the Spark session has no SparkContext (Spark Connect), so it does not name the query of a batch"
        raise InvalidInput(f"{problem}; run write_batch in the driver of a classic session") from error
    query_id = context.getLocalProperty("sql.streaming.queryId") or _query_id_of_session(df)
    if query_id is None:
        return None, PROCESS_RUN_ID
    return query_id, _run_id(df, query_id)


def _query_id_of_session(df: DataFrame) -> str | None:
    """Return the id of the active streaming query that runs in the session of a DataFrame. Return None without one.

    A thread that a function of `foreachBatch` starts has no local properties, unless it is an InheritableThread. Each
    query has a session of its own, and its batches have that session in all threads. If this version of Spark does not
    show it, return None.
    """
    session: Any = df.sparkSession
    queries = session._jsparkSession.sharedState().activeStreamingQueries().elements()
    try:
        while queries.hasMoreElements():
            query = queries.nextElement()
            if session._jsparkSession.equals(query.sparkSessionForStream()):
                return str(query.id().toString())
    except Py4JError:
        return None
    return None


def _run_id(df: DataFrame, query_id: str) -> str:
    """Return the run id of an active query. Raise SinkError if Spark does not list it.

    Spark's job group is the run id, too, until a function of `foreachBatch` sets another one. The session that Spark
    gives to such a function does not list the query among its own, so it is found among those of all sessions.
    """
    return str(_query(df, query_id).runId().toString())


def plan_of(df: DataFrame, query_id: str, batch_id: int) -> str | None:
    """Return the fingerprint of the source offsets of a batch, or None if this version of Spark does not have them."""
    log = _query(df, query_id).offsetLog
    session: Any = df.sparkSession
    try:
        planned = log().get(batch_id)
        if planned.isEmpty():
            return None
        content = session._jvm.java.io.ByteArrayOutputStream()
        log().serialize(planned.get(), content)
        return fingerprint(str(content.toString("UTF-8")))
    except Py4JError:
        return None


def _query(df: DataFrame, query_id: str) -> Any:
    session: Any = df.sparkSession
    key = session._jvm.java.util.UUID.fromString(query_id)
    query = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    if query is None:
        problem = f"Spark does not list the streaming query {query_id} as active, so the run of the batch is unknown"
        raise SinkError(f"{problem}; start the query again")
    return query


def run_job(rows: DataFrame, sink: SinkOptions, identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
    """Run the Spark job that writes the rows. Raise Doubtful if it fails.

    Each target partition is in one partition of the shuffle. The order of its rows depends on the input alone.
    """
    tasks = int(rows.sparkSession.conf.get(SHUFFLE_PARTITIONS) or 1)
    if counts:
        tasks = min(tasks, max(counts.values()))
    to_partitions = functools.partial(assign, assignment=Assignment(sink, dict(counts)))
    to_broker = functools.partial(write, options=sink, identity=identity)
    placed = (
        rows.mapInArrow(to_partitions, f"{ROW_SCHEMA}, {PLACED_COLUMNS}")
        .repartition(tasks, "topic", "target")
        .sortWithinPartitions("topic", "target", "source", "position")
    )
    return outcome_of(_notes(placed.mapInArrow(to_broker, REPORT_SCHEMA)))


def run_task_job(
    rows: DataFrame, sink: SinkOptions, identities: Mapping[int, ProducerIdentity], counts: Mapping[str, int]
) -> TaskReports:
    """Run the Spark job that writes the rows with an identity per task. Raise Doubtful if it fails."""
    to_broker = functools.partial(write_own, options=sink, identities=dict(identities), counts=dict(counts))
    return reports_of(_notes(rows.mapInArrow(to_broker, REPORT_SCHEMA)))


def _notes(reports: DataFrame) -> list[str]:
    try:
        return [row["note"] for row in reports.collect()]
    except Exception as error:
        raise Doubtful(f"the Spark job failed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the line of an exception that names its reason.

    py4j writes it after a colon, before the stack of the JVM. In an exception of a Python worker, it is the last line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (named or lines[-1:] or [type(error).__name__])[0]
