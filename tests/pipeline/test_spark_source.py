"""The source `odradek` in Spark, compared with Spark's own Kafka source on the same topics."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from odradek.client import (
    EARLIEST,
    Cluster,
    ConfigChange,
    ConfigKind,
    ConfigOperation,
    Consumer,
    alter_configs,
    create_topic,
    delete_topic,
)
from odradek.protocol.errors import ErrorCode
from odradek.spark import OdradekDataSource
from odradek.spark.source_reader import LIMITS_MODULE
from tests.support.pyspark_versions import connector_fits
from tests.support.queries import ended
from tests.support.topics import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.topics import Topics

pytestmark = pytest.mark.spark
SOURCES = ("odradek", "kafka")
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(OdradekDataSource)


def source(spark: SparkSession, topics: Topics, kind: str, **options: Any) -> DataFrame:
    isolation = COMMITTED if "includeTransactions" not in options else {}
    given = {"kafka.bootstrap.servers": topics.bootstrap, **isolation, **options}
    return spark.read.format(kind).options(**given).load()


def rows(table: DataFrame) -> list[Row]:
    return sorted(table.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def values(table: DataFrame) -> list[str]:
    return sorted(row.value for row in table.select(F.col("value").cast("string").alias("value")).collect())


def both(spark: SparkSession, topics: Topics, **options: Any) -> list[Row]:
    """Return the rows of both sources, which must be equal in all columns.

    Newer versions of pyspark have no stock source here (test_newest_pyspark.py), so the result is that of one source.
    """
    found = source(spark, topics, "odradek", **options)
    found_rows = rows(found)
    if connector_fits():
        expected = source(spark, topics, "kafka", **options)
        assert found.schema == expected.schema
        assert found_rows == rows(expected)
    return found_rows


def numbered(count: int, prefix: str = "") -> list[str]:
    return sorted(f"{prefix}{number:05}" for number in range(count))


def test_all_columns_are_those_of_the_stock_source(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    producer = topics.producer()
    for number in range(300):
        headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("a", b"")]
        key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"key%d" % number
        value = None if number % 7 == 0 else b"v" * number
        producer.produce(
            topic, value, key, partition=number % 2, headers=headers[: number % 4], timestamp=1_600_000_000_000 + number
        )
    assert producer.flush(30) == 0
    found = both(spark, topics, subscribe=topic, includeHeaders=True)
    assert len(found) == 300
    assert {row.headers is None for row in found} == {True, False}
    assert len(both(spark, topics, subscribe=topic)) == 300


def test_timestamp_has_the_type_of_the_stock_source_if_the_session_has_another_default(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.new()
    topics.write(topic, numbered(3), timestamp=1_600_000_000_000)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        table = source(spark, topics, "odradek", subscribe=topic)
        assert table.schema["timestamp"].dataType.simpleString() == "timestamp"
        assert len(both(spark, topics, subscribe=topic)) == 3
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_aborted_transactions_and_markers_are_no_rows(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    layout = topics.layout(topic, "C2 A5 N3 C2 A3")
    found = both(spark, topics, subscribe=topic)
    assert [row.value.decode() for row in found] == [value for value in layout if value]


def test_uncommitted_records_are_rows_on_request(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    topics.layout(topic, "C2 A3")
    found = both(spark, topics, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert len(found) == 5


def test_bounds_by_offset_and_by_timestamp_are_those_of_the_stock_source(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    for timestamp in (1_000_000, 2_000_000, 3_000_000):
        for partition in range(2):
            topics.write(topic, numbered(30, f"{timestamp}-"), partition=partition, timestamp=timestamp)
    cases: list[tuple[dict[str, Any], int]] = [
        ({"startingOffsets": json.dumps({topic: {"0": 10, "1": -2}}),
          "endingOffsets": json.dumps({topic: {"0": 13, "1": -1}})}, 93),
        ({"startingOffsetsByTimestamp": json.dumps({topic: {"0": 2_000_000, "1": 2_000_001}})}, 90),
        ({"endingOffsetsByTimestamp": json.dumps({topic: {"0": 2_000_000, "1": 9_000_000}})}, 120),
        ({"startingTimestamp": 1_000_001, "endingTimestamp": 2_000_001, "minPartitions": 7}, 60),
        ({"startingTimestamp": 9_000_000, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"startingOffsets": json.dumps({topic: {"0": 90, "1": 89}})}, 1),
    ]  # fmt: skip
    for options, count in cases:
        assert len(both(spark, topics, subscribe=topic, **options)) == count, options


def test_pattern_and_assignment_select_the_partitions_of_the_stock_source(spark: SparkSession, topics: Topics) -> None:
    family = topics.unique("family")
    one, other, unrelated = (topics.new(2, name=name) for name in (f"{family}-one", f"{family}-other", "unrelated"))
    for topic in (one, other, unrelated):
        for partition in range(2):
            topics.write(topic, numbered(4, f"{topic}-{partition}-"), partition=partition)
    assert {row.topic for row in both(spark, topics, subscribePattern=f"{family}-.*")} == {one, other}
    assert len(both(spark, topics, assign=json.dumps({one: [1], other: [0, 1]}))) == 12


def test_min_partitions_splits_as_the_stock_source(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, numbered(500, f"{partition}-"), partition=partition)
    kinds = SOURCES if connector_fits() else SOURCES[:1]
    tables = [source(spark, topics, kind, subscribe=topic, minPartitions=5) for kind in kinds]
    spans = [
        sorted(map(tuple, table.groupBy(F.spark_partition_id()).agg(
            F.min("partition"), F.min("offset"), F.max("offset")).drop("SPARK_PARTITION_ID()").collect()))
        for table in tables
    ]  # fmt: skip
    assert spans[0] == spans[-1]
    assert len(spans[0]) >= 5


def test_small_responses_do_not_lose_rows(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    for batch in range(8):
        topics.write(topic, numbered(50, f"{batch:02}-"))
    small = {"kafka.fetch.max.bytes": 2_000}
    assert len(rows(source(spark, topics, "odradek", subscribe=topic, **small))) == 400
    assert source(spark, topics, "odradek", subscribe=topic, **small).limit(3).count() == 3


@pytest.mark.full
@pytest.mark.timeout(180)
def test_compacted_topic_has_the_rows_of_the_stock_source(spark: SparkSession, topics: Topics) -> None:
    """Compaction leaves gaps of offsets, within batches and between them."""
    topic = topics.unique("compacted")
    configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}

    async def create() -> None:
        async with Cluster(topics.bootstrap) as cluster:
            await create_topic(cluster, topic, partitions=1, replication_factor=1, configs=configs)

    async def await_compaction(count: int) -> None:
        async with Cluster(topics.bootstrap) as cluster:
            attempts = cluster.attempts()
            while True:
                found = [
                    record async for batch in Consumer(cluster, topic, start=EARLIEST).batches() for record in batch
                ]
                if len(found) < count:
                    return
                if await attempts.prepare(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is None:
                    raise AssertionError("the topic was not compacted")

    asyncio.run(create())
    producer = topics.producer()
    count = 20_000
    for number in range(count):
        producer.produce(topic, b"value %0100d" % number, b"key %d" % (number % 17 if number % 2 else number))
        if number % 100 == 0:
            assert producer.flush(SECONDS_MAX) == 0
    assert producer.flush(SECONDS_MAX) == 0
    asyncio.run(await_compaction(count))
    change = ConfigChange(ConfigOperation.SET, "cleanup.policy", "delete")  # both sources must read the same log
    asyncio.run(with_cluster(topics, lambda cluster: alter_configs(cluster, ConfigKind.TOPIC, topic, [change])))
    found = both(spark, topics, subscribe=topic)
    assert len(found) < count
    assert found[-1].offset == count - 1


async def with_cluster(topics: Topics, call: Callable[[Cluster], Awaitable[object]]) -> None:
    async with Cluster(topics.bootstrap) as cluster:
        await call(cluster)


def stream(
    spark: SparkSession, topics: Topics, directory: Path, trigger: dict[str, Any] | None = None, **options: Any
) -> StreamingQuery:
    """Start a query that writes values to Parquet. Without a trigger, it ends after the available records."""
    given = {"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest", **options}
    table = spark.readStream.format("odradek").options(**given).load()
    writer = table.select(F.col("value").cast("string")).writeStream.format("parquet")
    writer = writer.option("path", str(directory / "rows")).option("checkpointLocation", str(directory / "checkpoint"))
    query: StreamingQuery = writer.trigger(**(trigger or {"availableNow": True})).start()
    return query if trigger else ended(query)


def written(spark: SparkSession, directory: Path) -> list[str]:
    return sorted(row.value for row in spark.read.schema("value string").parquet(str(directory / "rows")).collect())


def delete_records(topics: Topics, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    for result in admin.delete_records([ConfluentPartition(topic, 0, before)]).values():
        result.result(SECONDS_MAX)


def test_stream_continues_from_its_checkpoint_and_finds_new_partitions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new()
    topics.layout(topic, "C20 A7 C20")
    stream(spark, topics, tmp_path, subscribe=topic)
    assert len(written(spark, tmp_path)) == 40
    admin = AdminClient({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(SECONDS_MAX)
    for partition in range(2):
        topics.write(topic, numbered(15, f"{partition}-"), partition=partition)
    stream(spark, topics, tmp_path, subscribe=topic)
    assert len(written(spark, tmp_path)) == 70
    [offsets] = [line for line in (tmp_path / "checkpoint/offsets/1").read_text().splitlines() if topic in line]
    assert json.loads(offsets) == {topic: {"0": 65, "1": 15}}


def test_stream_reads_records_that_arrive_during_the_query(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    topics.write(topic, numbered(20, "a"))
    query = stream(spark, topics, tmp_path, {"processingTime": "100 milliseconds"}, subscribe=topic)
    try:
        query.processAllAvailable()
        assert written(spark, tmp_path) == numbered(20, "a")
        topics.write(topic, numbered(30, "b"))
        query.processAllAvailable()
    finally:
        query.stop()
    assert written(spark, tmp_path) == sorted(numbered(20, "a") + numbered(30, "b"))


def test_first_batch_from_latest_that_is_repeated_loses_no_record(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The checkpoint has the end of the first batch, but not its begin."""
    topic = topics.new()
    topics.write(topic, numbered(10, "before"))
    stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="latest")
    assert written(spark, tmp_path) == []
    (tmp_path / "checkpoint/commits/0").unlink()  # as if the driver had failed before the commit
    (tmp_path / "checkpoint/commits/.0.crc").unlink()
    topics.write(topic, numbered(10, "after"))
    for _ in range(2):  # in pyspark 4.0, the first of these runs repeats the batch and ends
        stream(spark, topics, tmp_path, subscribe=topic, startingOffsets="latest")
    assert written(spark, tmp_path) == numbered(10, "after")


def test_limit_of_a_trigger_is_served_or_refused(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, numbered(50, f"{partition}-"), partition=partition)
    if find_spec(LIMITS_MODULE) is None:
        with pytest.raises(PySparkException, match=r"option maxOffsetsPerTrigger needs pyspark 4\.2 or later"):
            stream(spark, topics, tmp_path, subscribe=topic, maxOffsetsPerTrigger=40)
        return
    query = stream(spark, topics, tmp_path, subscribe=topic, maxOffsetsPerTrigger=40)
    assert [progress.numInputRows for progress in query.recentProgress] == [40, 40, 20]
    assert written(spark, tmp_path) == sorted(numbered(50, "0-") + numbered(50, "1-"))


def test_deleted_records_fail_a_stream_or_are_skipped(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    topics.write(topic, numbered(10, "a"))
    stream(spark, topics, tmp_path, subscribe=topic)
    topics.write(topic, numbered(10, "b"))
    delete_records(topics, topic, 15)
    with pytest.raises(
        PySparkException, match=r"offset 10 of .* is not readable: the log has the offsets from 15 to 20"
    ):
        stream(spark, topics, tmp_path, subscribe=topic)
    stream(spark, topics, tmp_path, subscribe=topic, failOnDataLoss=False)
    assert written(spark, tmp_path) == sorted(numbered(10, "a") + numbered(10, "b")[5:])


def test_deleted_topic_fails_a_stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic, other = topics.new(), topics.new()
    for name in (topic, other):
        topics.write(name, numbered(10, name))
    stream(spark, topics, tmp_path, subscribe=f"{topic},{other}")
    asyncio.run(with_cluster(topics, lambda cluster: delete_topic(cluster, topic)))
    topics.write(other, numbered(5, "more"))
    with pytest.raises(PySparkException, match=f"{topic}-0 do not exist any more"):
        stream(spark, topics, tmp_path, subscribe=f"{topic},{other}")
    stream(spark, topics, tmp_path, subscribe=f"{topic},{other}", failOnDataLoss=False)
    assert len(written(spark, tmp_path)) == 25


def test_transactions_have_outcomes_and_markers(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    topics.layout(topic, "C2 A1 N1")
    opened, ending = topics.producer("open"), topics.producer("ending")
    opened.begin_transaction()
    topics.write(topic, ["open"], producer=opened)
    ending.begin_transaction()
    topics.write(topic, ["behind"], producer=ending)
    ending.abort_transaction(SECONDS_MAX)
    topics.write(topic, ["last"])  # at the latest now, the marker is in the log
    try:
        found = rows(source(spark, topics, "odradek", subscribe=topic, includeTransactions=True))
    finally:
        opened.abort_transaction(SECONDS_MAX)
    assert [(row.isTransactional, row.isControl, row.transactionOutcome, row.controlType) for row in found] == [
        (True, False, "committed", None),
        (True, False, "committed", None),
        (True, True, "committed", "COMMIT"),
        (True, False, "aborted", None),
        (True, True, "aborted", "ABORT"),
        (False, False, "none", None),
        (True, False, "open", None),
        (True, False, "aborted", None),
        (True, True, "aborted", "ABORT"),
        (False, False, "none", None),
    ]
    assert [row.offset for row in found] == list(range(10))
    assert [row.sequence for row in found][:2] == [0, 1]
    assert len({row.producerId for row in found if row.isTransactional}) == 3
    assert all((row.coordinatorEpoch is not None) == row.isControl for row in found)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"startingOffset": "latest"}, "unknown option startingoffset; the source knows assign"),
        ({"subscribe": "absent"}, "topic absent does not exist; create it before the query starts"),
        (
            {"startingOffsets": '{"absent": {"0": 5}}'},
            "must name all partitions and no others: .* absent-0 are not read",
        ),
        (
            {"startingTimestamp": 9_000_000_000_000},
            "no record for the start timestamp in .*-0 at or after 9000000000000",
        ),
        ({"endingOffsets": "999"}, "option endingOffsets: '999' is invalid"),
    ],
)
def test_invalid_option_fails_the_query(
    spark: SparkSession, topics: Topics, changed: dict[str, Any], message: str
) -> None:
    topic = topics.new()
    with pytest.raises(PySparkException, match=message):
        source(spark, topics, "odradek", **{"subscribe": topic, **changed}).collect()


def test_end_after_the_log_and_foreign_schema_are_refused(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, numbered(5))
    end = {"endingOffsets": json.dumps({topic: {"0": 9}})}
    with pytest.raises(PySparkException, match=r"-0 ends at offset 5, before the ending offset 9"):
        source(spark, topics, "odradek", subscribe=topic, **end).collect()
    assert len(values(source(spark, topics, "odradek", subscribe=topic, failOnDataLoss=False, **end))) == 5
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    with pytest.raises(PySparkException, match="the columns of the source are fixed"):
        spark.read.format("odradek").schema("value string").options(**given).load().collect()
