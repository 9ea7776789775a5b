"""Spark's Kafka connector with transactions: offsets of markers and aborted records are invisible with read_committed.

The connector plans its batches by offset. In each case, the invisible offsets are at another position of a batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.queries import ended
from tests.support.topics import SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.topics import Topics

pytestmark = pytest.mark.spark

OFFSETS_PER_BATCH = 3
CASES = {
    # name: plan of the topic (see Topics.layout), and the offsets of each batch (x: visible, -: invisible)
    "whole batch invisible": ("C2 A5 C2", ["xx-", "---", "---", "xx-"]),
    "last offset invisible": ("C2 C2", ["xx-", "xx-"]),
    "last offsets invisible": ("N1 A1 N3", ["x--", "xxx"]),
    "first offset invisible": ("C2 A2 N4", ["xx-", "---", "xxx", "x"]),
    "first offsets invisible": ("A1 C3", ["--x", "xx-"]),
    "gap in the middle": ("C1 C3", ["x-x", "xx-"]),
    "gap of aborted rows in the middle": ("N4 A1 N1", ["xxx", "x--", "x"]),
    "transaction across batches": ("C8", ["xxx", "xxx", "xx-"]),
    "aborted transaction across batches": ("A8 N1", ["---", "---", "---", "x"]),
    "only markers between": ("C1 C1 C1", ["x-x", "-x-"]),
}
CASES_SHORT = (
    "whole batch invisible",
    "last offsets invisible",
    "first offset invisible",
    "gap of aborted rows in the middle",
    "only markers between",
)
"""Cases of `make test`: invisible offsets at each position of a batch, of markers alone and of aborted records."""


def records(
    spark: SparkSession, topics: Topics, topic: str, isolation: str = "read_committed", **options: Any
) -> DataFrame:
    table = spark.read.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    return table.option("subscribe", topic).option("kafka.isolation.level", isolation).options(**options).load()


def values(table: DataFrame) -> list[str]:
    return sorted(row.value for row in table.select(F.col("value").cast("string").alias("value")).collect())


def stream(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, batches: list[list[str]], **options: Any
) -> StreamingQuery:
    """Read all present records in a query, and append the values of each batch to `batches`."""
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )

    def collect(batch: DataFrame, _: int) -> None:
        batches.append(values(batch))

    query = (
        rows.writeStream.foreachBatch(collect)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    return ended(query)


def ends(query: StreamingQuery, topic: str) -> list[int]:
    """Return the end offset of each batch in partition 0."""
    sources = [progress.sources[0] for progress in query.recentProgress]
    return [int(json.loads(source.endOffset)[topic]["0"]) for source in sources]


@pytest.mark.parametrize(
    "case", [case if case in CASES_SHORT else pytest.param(case, marks=pytest.mark.full) for case in CASES]
)
def test_each_batch_reads_exactly_its_committed_records(
    spark: SparkSession, topics: Topics, checkpoint: str, case: str
) -> None:
    plan, picture = CASES[case]
    topic = topics.new()
    offsets = topics.layout(topic, plan)
    expected = [offsets[start : start + OFFSETS_PER_BATCH] for start in range(0, len(offsets), OFFSETS_PER_BATCH)]
    assert ["".join("x" if value else "-" for value in batch) for batch in expected] == picture, (
        "the topic does not have the layout of the case"
    )

    batches: list[list[str]] = []
    query = stream(spark, topics, topic, checkpoint, batches, maxOffsetsPerTrigger=OFFSETS_PER_BATCH)
    assert batches == [sorted(filter(None, batch)) for batch in expected]
    assert ends(query, topic) == [min(start + OFFSETS_PER_BATCH, len(offsets)) for start in range(0, len(offsets), 3)]
    assert values(records(spark, topics, topic)) == sorted(filter(None, offsets))


def test_read_uncommitted_returns_aborted_records_and_no_markers(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    offsets = topics.layout(topic, "C2 A5 C2")
    read = values(records(spark, topics, topic, "read_uncommitted"))
    assert len(read) == 9
    assert set(filter(None, offsets)) < set(read)


def test_batch_read_of_an_offset_range_returns_exactly_its_committed_records(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.new()
    offsets = topics.layout(topic, "C2 A2 N1 C1")
    for start, end in ((2, 3), (3, 5), (3, 7), (1, 6), (7, 9)):
        bounds = {
            "startingOffsets": json.dumps({topic: {"0": start}}),
            "endingOffsets": json.dumps({topic: {"0": end}}),
        }
        assert values(records(spark, topics, topic, **bounds)) == sorted(filter(None, offsets[start:end])), (start, end)


def test_min_partitions_may_split_a_transaction_at_any_offset(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    offsets = topics.layout(topic, "C5 A5 C3 A1 C4 N3")
    assert values(records(spark, topics, topic, minPartitions=9)) == sorted(filter(None, offsets))


def test_query_ends_with_a_partition_of_aborted_records_only(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    topic = topics.new(2)
    aborted = topics.layout(topic, "A4 A1 A3")
    kept = topics.layout(topic, "C3", partition=1)
    assert not any(aborted)
    batches: list[list[str]] = []
    stream(spark, topics, topic, checkpoint, batches)
    assert batches == [sorted(filter(None, kept))]
    assert values(records(spark, topics, topic)) == sorted(filter(None, kept))


def test_open_transaction_holds_back_only_records_after_its_first_offset(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    topic = topics.new()
    topics.layout(topic, "C2")
    holder = topics.producer("holder")
    holder.begin_transaction()
    topics.write(topic, ["held"], producer=holder)
    topics.write(topic, ["plain"])
    follower = topics.producer("follower")
    follower.begin_transaction()
    topics.write(topic, ["follower"], producer=follower)
    follower.commit_transaction(SECONDS_MAX)

    before = ["0.0.0", "0.0.1"]
    batches: list[list[str]] = []
    stream(spark, topics, topic, checkpoint, batches)
    assert batches == [before]
    assert values(records(spark, topics, topic)) == before

    holder.commit_transaction(SECONDS_MAX)
    topics.settle(topic)
    stream(spark, topics, topic, checkpoint, batches)
    assert batches == [before, ["follower", "held", "plain"]]


def test_records_of_an_open_transaction_that_aborts_are_never_read(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    topic = topics.new()
    holder = topics.producer("holder")
    holder.begin_transaction()
    topics.write(topic, ["held"], producer=holder)
    topics.write(topic, ["plain"])
    batches: list[list[str]] = []
    stream(spark, topics, topic, checkpoint, batches)
    assert batches in ([], [[]]), "the open transaction is at the log start: the last stable offset is 0"
    holder.abort_transaction(SECONDS_MAX)
    topics.settle(topic)
    stream(spark, topics, topic, checkpoint, batches)
    assert batches[-1] == ["plain"]


def test_interleaved_transactions_of_two_producers_are_distinguished(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    kept, dropped = topics.producer("kept"), topics.producer("dropped")
    for producer in (kept, dropped):
        producer.begin_transaction()
    for number in range(5):
        topics.write(topic, [f"kept {number}"], producer=kept)
        topics.write(topic, [f"dropped {number}"], producer=dropped)
    dropped.abort_transaction(SECONDS_MAX)
    topics.write(topic, ["kept last"], producer=kept)
    assert values(records(spark, topics, topic)) == [], "the first transaction is still open"
    kept.commit_transaction(SECONDS_MAX)
    topics.settle(topic)
    assert values(records(spark, topics, topic)) == [*(f"kept {number}" for number in range(5)), "kept last"]
