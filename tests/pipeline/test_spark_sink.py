"""The sink `odradek` in Spark: parallel and staged writes, replays, restarts of queries, invalid input."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from odradek.client import Cluster, committed_offsets
from odradek.client.producer.partitioner import partition_of
from odradek.pipeline.eos.checkpoint import delete_last_commit
from odradek.spark import BatchFailed, InvalidInput, OdradekDataSource, Step, exactly_once, write_batch
from odradek.spark.exactly_once import STEPS
from odradek.spark.ledger import LedgerEntry, decoded
from odradek.spark.options import sink_options
from tests.support.committed_records import committed_records
from tests.support.queries import ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.client import ConsumerRecord
    from tests.support.topics import Topics

pytestmark = pytest.mark.spark
ROWS = 600


class Killed(BaseException):
    """Ends a driver without any clean-up."""


def visible(topics: Topics, topic: str) -> list[ConsumerRecord]:
    """Return the records that a read_committed consumer sees, in the order of their values."""
    return asyncio.run(committed_records(topics.bootstrap, topic, f"spark.{topic}"))


def last_entry(options: dict[str, str]) -> LedgerEntry:
    sink = sink_options(options)

    async def read() -> LedgerEntry:
        async with Cluster(sink.bootstrap) as cluster:
            return decoded((await committed_offsets(cluster, sink.transactional_id))[sink.ledger])

    return asyncio.run(read())


def options_of(topics: Topics, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "sink": topic}


def table(spark: SparkSession, first: int = 0, count: int = ROWS) -> DataFrame:
    return spark.range(first, first + count, 1, 3).select(
        F.col("id").cast("string").alias("key"),
        F.format_string("%06d", "id").alias("value"),
        F.array(F.struct(F.lit("origin").alias("key"), F.lit("JFK").cast("binary").alias("value"))).alias("headers"),
        F.timestamp_millis(F.col("id")).alias("timestamp"),
    )


def require_mode(mode: str, request: pytest.FixtureRequest) -> None:
    """Skip the test if the broker does not permit the mode."""
    if mode == "2pc":
        request.getfixturevalue("two_phase_bootstrap")


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def test_batch_is_written_once_although_it_is_repeated(spark: SparkSession, topics: Topics) -> None:
    options = options_of(topics, topics.new(3))
    for _ in range(2):
        write_batch(table(spark), 0, options)
    found = visible(topics, options["topic"])
    assert values(found) == numbered(0, ROWS)
    assert all(record.partition == partition_of(record.key or b"", 3) for record in found)
    assert {record.headers for record in found} == {(("origin", b"JFK"),)}
    assert [record.timestamp_ms for record in found] == list(range(ROWS))
    entry = last_entry(options)
    assert (entry.batch_id, entry.query_id, entry.rows) == (0, None, ROWS)


@pytest.mark.parametrize("step", STEPS["txn"])
def test_driver_killed_after_a_step_neither_loses_nor_repeats_rows(
    spark: SparkSession, topics: Topics, step: Step
) -> None:
    def kill(done: Step) -> None:
        if done is step:
            raise Killed

    options = options_of(topics, topics.new(3))
    with pytest.raises(Killed):
        write_batch(table(spark), 0, options, on_step=kill)
    exactly_once._sessions.clear()  # a new driver knows none
    write_batch(table(spark), 0, options)
    assert values(visible(topics, options["topic"])) == numbered(0, ROWS)


@pytest.mark.parametrize("mode", STEPS)
def test_killed_python_worker_leads_to_a_new_attempt_of_the_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path, mode: str, request: pytest.FixtureRequest
) -> None:
    require_mode(mode, request)
    killed = tmp_path / "killed"

    def kill_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    options = {**options_of(topics, topics.new(3)), "mode": mode}
    begun: list[Step] = []
    rows = table(spark).coalesce(2)  # not more tasks than the estimate of mode 2pc
    write_batch(rows.mapInArrow(kill_once, rows.schema), 0, options, on_step=begun.append)
    assert killed.exists()
    assert begun.count(Step.BEGUN) >= 2  # a third attempt if a task of the second one ran twice, too
    assert values(visible(topics, options["topic"])) == numbered(0, ROWS)


def test_failed_function_of_the_user_is_the_reason_of_the_failed_batch(spark: SparkSession, topics: Topics) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(iter(batches))
        raise ValueError("no airport has this name")

    options = options_of(topics, topics.new(1))
    rows = table(spark)
    with pytest.raises(BatchFailed, match="the Spark job failed: ValueError: no airport has this name"):
        write_batch(rows.mapInArrow(fail, rows.schema), 0, options)
    assert visible(topics, options["topic"]) == []


def test_job_group_of_the_user_does_not_replace_the_run_id(
    spark: SparkSession, topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    options = options_of(topics, topics.new(1))
    table(spark, 0, 10).write.parquet(str(tmp_path / "source"))

    def each_batch(df: DataFrame, batch_id: int) -> None:
        df.sparkSession.sparkContext.setJobGroup("mine", "a job group of the user")
        write_batch(df, batch_id, options)

    stream = spark.readStream.schema(table(spark).schema).parquet(str(tmp_path / "source"))
    writer = stream.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    query = ended(writer.trigger(availableNow=True).start())
    assert last_entry(options).run_id == query.runId


def test_batch_written_in_a_thread_of_the_function_belongs_to_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    """A thread of a ThreadPoolExecutor does not have the local properties of the thread that runs the batch."""
    options = options_of(topics, topics.new(1))
    table(spark, 0, 10).write.parquet(str(tmp_path / "source"))

    def each_batch(df: DataFrame, batch_id: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write_batch, df, batch_id, options).result()

    stream = spark.readStream.schema(table(spark).schema).parquet(str(tmp_path / "source"))
    writer = stream.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    query = ended(writer.trigger(availableNow=True).start())
    entry = last_entry(options)
    assert (entry.query_id, entry.run_id, entry.rows) == (query.id, query.runId, 10)
    assert entry.plan is not None


def start(spark: SparkSession, source: Path, checkpoint: str, options: dict[str, str], fail_at: str) -> StreamingQuery:
    """Start a query with two files per batch, whose sink fails after a step of one batch: `BATCH:STEP`."""

    def each_batch(df: DataFrame, batch_id: int) -> None:
        def fail(done: Step) -> None:
            if f"{batch_id}:{done.name}" == fail_at:
                raise Killed

        try:
            write_batch(df, batch_id, options, on_step=fail)
        except Killed as error:
            exactly_once._sessions.clear()
            raise RuntimeError("the driver was killed") from error

    stream = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 2).parquet(str(source))
    query: StreamingQuery = (
        stream.writeStream.foreachBatch(each_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    return query


@pytest.mark.parametrize("mode", ["txn", pytest.param("2pc", marks=pytest.mark.full)])
def test_restarted_query_continues_with_the_batch_that_failed(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    checkpoint: str,
    mode: str,
    request: pytest.FixtureRequest,
) -> None:
    require_mode(mode, request)
    options = {**options_of(topics, topics.new(2)), "mode": mode}
    source = tmp_path / "source"
    for number in range(4):
        rows = table(spark, number * 100, 100).select("key", "value").coalesce(1)
        rows.write.mode("append").parquet(str(source))
    for fail_at in ("0:WRITTEN", "1:COMMITTED" if mode == "txn" else "1:DECIDED"):
        with pytest.raises(PySparkException, match="the driver was killed"):
            start(spark, source, checkpoint, options, fail_at).awaitTermination()
    query = ended(start(spark, source, checkpoint, options, ""))
    assert values(visible(topics, options["topic"])) == numbered(0, 400)
    entry = last_entry(options)
    assert (entry.batch_id, entry.query_id) == (1, query.id)
    with pytest.raises(PySparkException, match="was written by query"):
        start(spark, source, f"{checkpoint}-new", options, "").awaitTermination()


def copy_all(spark: SparkSession, topics: Topics, topic: str, checkpoint: str, options: dict[str, str]) -> None:
    """Copy the committed records of a topic in one batch."""
    stream = spark.readStream.format("odradek").options(
        **{"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    )
    rows = stream.load().select("key", "value")
    writer = rows.writeStream.foreachBatch(lambda df, batch_id: write_batch(df, batch_id, options))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    ended(query)


@pytest.mark.full  # tests/unit/spark/test_ledger.py is the short form
def test_restored_checkpoint_that_lacks_the_last_batch_is_refused_and_no_row_is_lost(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The checkpoint plans other rows for the last batch. If the sink skipped the batch, these rows would be lost."""
    spark.dataSource.register(OdradekDataSource)
    topic, checkpoint, options = topics.new(), tmp_path / "checkpoint", options_of(topics, topics.new(3, name="out"))
    topics.write(topic, ["first"])
    copy_all(spark, topics, topic, str(checkpoint), options)
    copied = shutil.copytree(checkpoint, tmp_path / "copy")
    topics.write(topic, ["second"])
    copy_all(spark, topics, topic, str(checkpoint), options)
    assert delete_last_commit(checkpoint) == 1
    copy_all(spark, topics, topic, str(checkpoint), options)  # the same batch
    assert values(visible(topics, options["topic"])) == [b"first", b"second"]
    topics.write(topic, ["third"])
    with pytest.raises(PySparkException, match="batch 1 of the sink has other source offsets"):
        copy_all(spark, topics, topic, str(copied), options)
    assert values(visible(topics, options["topic"])) == [b"first", b"second"]


def test_stream_writer_writes_each_batch_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    spark.dataSource.register(OdradekDataSource)
    options = options_of(topics, topics.new(2))
    source = tmp_path / "source"
    for number in range(2):
        table(spark, number * 100, 100).write.mode("append").parquet(str(source))
        stream = spark.readStream.schema(table(spark).schema).parquet(str(source))
        writer = stream.writeStream.format("odradek").options(**options).option("checkpointLocation", checkpoint)
        ended(writer.trigger(availableNow=True).start())
    found = visible(topics, options["topic"])
    assert values(found) == numbered(0, 200)
    assert {record.headers for record in found} == {(("origin", b"JFK"),)}
    assert last_entry(options).batch_id == 1


def test_batch_query_with_an_id_writes_once(spark: SparkSession, topics: Topics) -> None:
    spark.dataSource.register(OdradekDataSource)
    options = options_of(topics, topics.new(2))
    for _ in range(2):
        table(spark).write.format("odradek").options(**options, batchId="0").mode("append").save()
    assert values(visible(topics, options["topic"])) == numbered(0, ROWS)


@pytest.mark.parametrize(
    ("columns", "changed", "message"),
    [
        (["key"], {}, "column value is missing"),
        (["value", "id as partition"], {}, "column partition has type bigint; the sink writes int"),
        (["value", "3 as partition"], {}, "has no partition 3; it has 2"),
        (["repeat(value, 200000) as value"], {}, "MESSAGE_TOO_LARGE"),
        (["value"], {"topic": "absent"}, "topic absent does not exist"),
        (["value"], {"linger": "5"}, "unknown option linger"),
    ],
)
def test_invalid_input_is_refused_and_nothing_is_visible(
    spark: SparkSession, topics: Topics, columns: list[str], changed: dict[str, Any], message: str
) -> None:
    topic = topics.new(2)
    rows = table(spark, count=20).withColumn("id", F.lit(1).cast("bigint")).selectExpr(*columns)
    with pytest.raises(InvalidInput, match=message):
        write_batch(rows, 0, {**options_of(topics, topic), **changed})
    assert visible(topics, topic) == []
