"""Spark's Kafka connector without transactions: batch reads and writes, streams, checkpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.queries import ended

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.topics import Topics

pytestmark = pytest.mark.spark


def source(spark: SparkSession, topics: Topics, **options: str | bool | int) -> DataFrame:
    return spark.read.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).options(**options).load()


def values(table: DataFrame) -> list[str]:
    return sorted(row.value for row in table.select(F.col("value").cast("string").alias("value")).collect())


def numbered(count: int, prefix: str = "") -> list[str]:
    return sorted(f"{prefix}{number:05}" for number in range(count))


def to_parquet(
    spark: SparkSession, topics: Topics, out: Path, *, trigger: dict[str, Any], **options: Any
) -> StreamingQuery:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("startingOffsets", "earliest").options(**options)
    rows = stream.load().select("topic", "partition", "offset", F.col("value").cast("string").alias("value"))
    sink = rows.writeStream.format("parquet").option("path", str(out / "rows"))
    query: StreamingQuery = sink.option("checkpointLocation", str(out / "checkpoint")).trigger(**trigger).start()
    return query


def parquet_values(spark: SparkSession, out: Path) -> list[str]:
    return sorted(row.value for row in spark.read.parquet(str(out / "rows")).collect())


def test_batch_written_by_the_sink_is_read_by_the_source(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(4)
    table = spark.range(5000).select(
        F.col("id").cast("string").alias("key"),
        F.concat(F.lit("value "), F.col("id")).alias("value"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.array(F.struct(F.lit("origin").alias("key"), F.lit("JFK").cast("binary").alias("value"))).alias("headers"),
    )
    sink = table.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    sink.option("topic", topic).option("includeHeaders", value=True).save()

    rows_read = source(spark, topics, subscribe=topic, includeHeaders=True).select(
        F.col("key").cast("string").cast("int").alias("id"), F.col("value").cast("string"), "partition", "headers"
    )
    rows = rows_read.collect()
    assert sorted(row.id for row in rows) == list(range(5000))
    assert all(row.value == f"value {row.id}" and row.partition == row.id % 4 for row in rows)
    assert all([(header.key, bytes(header.value)) for header in row.headers] == [("origin", b"JFK")] for row in rows)


def test_sink_accepts_a_topic_per_row_and_null_keys_and_values(spark: SparkSession, topics: Topics) -> None:
    one, other = topics.new(name="one"), topics.new(name="other")
    table = spark.createDataFrame(
        [(one, "k", "v"), (other, None, "w"), (other, "k", None)], "topic string, key string, value string"
    )
    table.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).save()
    rows_read = source(spark, topics, subscribe=f"{one},{other}").select(
        "topic", F.col("key").cast("string"), F.col("value").cast("string")
    )
    assert {tuple(row) for row in rows_read.collect()} == {(one, "k", "v"), (other, None, "w"), (other, "k", None)}


def test_batch_read_respects_its_start_and_end_offsets(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, numbered(100, f"{partition}-"), partition=partition)
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 10, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 13, "1": -1}}),
    }
    rows_read = values(source(spark, topics, subscribe=topic, **bounds))
    assert rows_read == sorted([f"0-{number:05}" for number in (10, 11, 12)] + numbered(100, "1-"))


def test_assign_reads_only_the_assigned_partitions(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(3)
    for partition in range(3):
        topics.write(topic, numbered(5, f"{partition}-"), partition=partition)
    rows_read = values(source(spark, topics, assign=json.dumps({topic: [0, 2]})))
    assert rows_read == sorted(numbered(5, "0-") + numbered(5, "2-"))


def test_batch_read_respects_its_start_and_end_timestamps(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    for timestamp in (1_000_000, 2_000_000, 3_000_000):
        for partition in range(2):
            topics.write(topic, numbered(3, f"{timestamp}-{partition}-"), partition=partition, timestamp=timestamp)
    start = json.dumps({topic: {"0": 2_000_000, "1": 2_000_001}})
    rows_read = values(source(spark, topics, subscribe=topic, startingOffsetsByTimestamp=start))
    assert rows_read == sorted(numbered(3, "2000000-0-") + numbered(3, "3000000-0-") + numbered(3, "3000000-1-"))
    end = json.dumps({topic: {"0": 2_000_000, "1": 1_000_000}})
    assert values(source(spark, topics, subscribe=topic, endingOffsetsByTimestamp=end)) == numbered(3, "1000000-0-")
    both = {"startingTimestamp": "1000001", "endingTimestamp": "2000001"}
    rows_read = values(source(spark, topics, subscribe=topic, **both))
    assert rows_read == sorted(numbered(3, "2000000-0-") + numbered(3, "2000000-1-"))


def test_start_timestamp_after_the_last_record_is_the_end_with_strategy_latest(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.new()
    topics.write(topic, numbered(3), timestamp=1_000_000)
    late = {"startingTimestamp": "9000000", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(source(spark, topics, subscribe=topic, **late)) == []


def test_headers_keep_order_repeated_names_and_null_values(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    producer = topics.producer()
    producer.produce(topic, b"with", headers=[("a", b"1"), ("b", None), ("a", b"2"), ("", b"")])
    producer.produce(topic, b"without")
    assert producer.flush(30) == 0
    rows = {
        bytes(row.value): row.headers for row in source(spark, topics, subscribe=topic, includeHeaders=True).collect()
    }
    assert [(header.key, header.value) for header in rows[b"with"]] == [
        ("a", b"1"),
        ("b", None),
        ("a", b"2"),
        ("", b""),
    ]
    assert rows[b"without"] is None


def test_min_partitions_splits_partitions_without_loss(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, numbered(500, f"{partition}-"), partition=partition)
    table = source(spark, topics, subscribe=topic, minPartitions=8)
    assert table.rdd.getNumPartitions() >= 8
    assert values(table) == sorted(numbered(500, "0-") + numbered(500, "1-"))


def test_available_now_reads_bounded_batches_and_ends(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    for partition in range(2):
        topics.write(topic, numbered(50, f"{partition}-"), partition=partition)
    query = to_parquet(
        spark, topics, tmp_path, trigger={"availableNow": True}, subscribe=topic, maxOffsetsPerTrigger=40
    )
    ended(query)
    assert [progress.numInputRows for progress in query.recentProgress] == [40, 40, 20]
    assert parquet_values(spark, tmp_path) == sorted(numbered(50, "0-") + numbered(50, "1-"))


def test_processing_time_reads_records_that_arrive_during_the_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.new()
    topics.write(topic, numbered(20, "a"))
    query = to_parquet(spark, topics, tmp_path, trigger={"processingTime": "200 milliseconds"}, subscribe=topic)
    try:
        query.processAllAvailable()
        assert parquet_values(spark, tmp_path) == numbered(20, "a")
        topics.write(topic, numbered(30, "b"))
        query.processAllAvailable()
    finally:
        query.stop()
    assert parquet_values(spark, tmp_path) == sorted(numbered(20, "a") + numbered(30, "b"))


def test_query_continues_from_its_checkpoint(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.new(2)
    expected: list[str] = []
    for run in range(3):
        for partition in range(2):
            topics.write(topic, numbered(25, f"{run}-{partition}-"), partition=partition)
            expected += numbered(25, f"{run}-{partition}-")
        query = to_parquet(spark, topics, tmp_path, trigger={"availableNow": True}, subscribe=topic)
        ended(query)
        assert sum(progress.numInputRows for progress in query.recentProgress) == 50
        assert parquet_values(spark, tmp_path) == sorted(expected)


def test_pattern_finds_topics_created_between_runs(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    family = topics.unique("family")
    one, unrelated = topics.new(name=f"{family}-one"), topics.new(name="unrelated")
    topics.write(one, numbered(10, "one"))
    topics.write(unrelated, numbered(10, "unrelated"))
    pattern = {"subscribePattern": f".*{family}.*"}
    assert values(source(spark, topics, **pattern)) == numbered(10, "one")
    ended(to_parquet(spark, topics, tmp_path, trigger={"availableNow": True}, **pattern))
    other = topics.new(2, name=f"{family}-other")
    topics.write(other, numbered(10, "other"), partition=1)
    topics.write(one, numbered(10, "two"))
    ended(to_parquet(spark, topics, tmp_path, trigger={"availableNow": True}, **pattern))
    assert parquet_values(spark, tmp_path) == sorted(numbered(10, "one") + numbered(10, "two") + numbered(10, "other"))


def test_stream_into_the_sink_is_complete(spark: SparkSession, topics: Topics, checkpoint: str) -> None:
    topic, target = topics.new(2), topics.new(3, name="target")
    for partition in range(2):
        topics.write(topic, numbered(200, f"{partition}-"), partition=partition)
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    rows = stream.option("subscribe", topic).option("startingOffsets", "earliest").load().select("key", "value")
    sink = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", target)
    ended(sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    assert values(source(spark, topics, subscribe=target)) == sorted(numbered(200, "0-") + numbered(200, "1-"))


def test_read_of_a_missing_topic_is_refused(spark: SparkSession, topics: Topics) -> None:
    name = topics.unique("nowhere")
    with pytest.raises(Exception, match=r"UnknownTopicOrPartition|does not host this topic"):
        source(spark, topics, assign=json.dumps({name: [0]})).collect()
