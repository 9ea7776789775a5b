"""Figures of a cluster's transactions, computed with Spark from the tables of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from odradek.pipeline.audit.evidence import LogRange

NUMBER_AT_END: Final = "[-_.:]?[0-9]+$"
"""End of a transactional id that its prefix does not have."""
PREFIXES_MAX: Final = 8
"""Maximum prefixes that are shown; those with the most decisions."""
OTHER: Final = "other"
IDS_MAX: Final = 12
"""Maximum transactional ids with the most initializations that are shown."""
OPEN_MAX: Final = 1_000
"""Maximum open transactions, and maximum partitions that they hold back, that are shown."""
BINS_MAX: Final = 120
"""Maximum intervals of the time axis."""
BIN_WIDTHS_MS: Final = tuple(1_000 * seconds for seconds in (1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400))
PERCENTILES: Final = (0.5, 0.95, 0.99)


class Rate(NamedTuple):
    """Decisions of a prefix in one interval, which begins at `at_ms`."""

    prefix: str
    at_ms: int
    commits: int
    aborts: int


class Latency(NamedTuple):
    """Percentiles of PERCENTILES in ms. `application` is begin to prepare, `markers` is prepare to complete."""

    prefix: str
    commit: bool
    decisions: int
    application: tuple[float, ...]
    markers: tuple[float, ...]


class OpenTransaction(NamedTuple):
    """A transaction with data and without markers. `age_ms` is the age of its data at the end of the logs."""

    transactional_id: str
    producer_id: int
    state: str
    partitions: int
    age_ms: int


class Holder(NamedTuple):
    """A partition and the transaction that holds back its last stable offset."""

    topic: str
    partition: int
    last_stable_offset: int
    behind: int
    transactional_id: str
    producer_id: int
    state: str
    age_ms: int


class Churn(NamedTuple):
    """Identities of a transactional id. InitProducerId raises its epoch, and with TV2 the end of a transaction does."""

    transactional_id: str
    initializations: int
    identities: int
    transitions: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of an audit. `coordinators` has the decisions by partition of `__transaction_state`."""

    bin_ms: int
    rates: Sequence[Rate]
    latencies: Sequence[Latency]
    open: Sequence[OpenTransaction]
    holders: Sequence[Holder]
    churn: Sequence[Churn]
    coordinators: dict[int, int]
    latest_ms: int


def statistics_of(read: DataFrame, judged: DataFrame, logs: Sequence[LogRange]) -> Statistics:
    """Compute the figures. `read` and `judged` have the tables READ and JUDGED."""
    decisions = _with_prefix(judged.where("decision is not null").select("decision.*")).cache()
    latest_ms = max((log.latest_ms for log in logs), default=-1)
    try:
        bin_ms, rates = _rates(decisions)
        latencies = _latencies(decisions)
        coordinators = {
            row["log_partition"]: row["count"] for row in decisions.groupBy("log_partition").count().collect()
        }
    finally:
        decisions.unpersist()
    data = judged.where("open_data is not null").select("open_data.*").orderBy("first_ms").limit(OPEN_MAX).collect()
    ends = {(log.topic, log.partition): log.end for log in logs}
    by_transaction: dict[tuple[str, int, str], list[int]] = {}
    by_partition: dict[tuple[str, int], Holder] = {}
    for row in sorted(data, key=lambda each: (each["topic"], each["partition"], each["first_offset"])):
        age_ms = max(latest_ms - row["first_ms"], 0)
        by_transaction.setdefault((row["transactional_id"], row["producer_id"], row["state"]), []).append(age_ms)
        place = row["topic"], row["partition"]
        holder = row["transactional_id"], row["producer_id"], row["state"], age_ms
        first = row["first_offset"]
        by_partition.setdefault(place, Holder(*place, first, ends.get(place, first) - first, *holder))
    found = [OpenTransaction(*key, len(ages), max(ages)) for key, ages in by_transaction.items()]
    return Statistics(
        bin_ms,
        rates,
        latencies,
        sorted(found, key=lambda each: -each.age_ms),
        list(by_partition.values()),
        _churn(read),
        coordinators,
        latest_ms,
    )


def _with_prefix(decisions: DataFrame) -> DataFrame:
    """Add the columns `prefix`, limited to the most frequent ones, and `at_ms`."""
    short = F.regexp_replace("transactional_id", NUMBER_AT_END, "")
    named = decisions.withColumn("short", F.when(short != "", short).otherwise(F.col("transactional_id")))
    rank = F.row_number().over(Window.orderBy(F.desc("count"), "short"))
    frequent = named.groupBy("short").count().withColumn("rank", rank).where(F.col("rank") <= PREFIXES_MAX)
    prefix = F.coalesce(F.col("prefix"), F.lit(OTHER))
    at_ms = F.when(F.col("has_prepare"), F.col("prepare_ms")).otherwise(F.col("complete_ms"))
    return (
        named.join(frequent.select("short", F.col("short").alias("prefix")), "short", "left")
        .withColumn("prefix", prefix)
        .withColumn("at_ms", at_ms)
        .drop("short")
    )


def _rates(decisions: DataFrame) -> tuple[int, list[Rate]]:
    """Return the width of an interval in ms, and the decisions by prefix and interval."""
    [limits] = decisions.agg(F.min("at_ms").alias("first"), F.max("at_ms").alias("last")).collect()
    span_ms = (limits["last"] or 0) - (limits["first"] or 0)
    bin_ms = next((width for width in BIN_WIDTHS_MS if span_ms <= BINS_MAX * width), BIN_WIDTHS_MS[-1])
    start_ms = F.floor(F.col("at_ms") / bin_ms) * bin_ms
    rows = (
        decisions.groupBy("prefix", start_ms.alias("start_ms"))
        .agg(F.count_if("commit").alias("commits"), F.count_if(~F.col("commit")).alias("aborts"))
        .orderBy("prefix", "start_ms")
        .collect()
    )
    return bin_ms, [Rate(row["prefix"], int(row["start_ms"]), row["commits"], row["aborts"]) for row in rows]


def _latencies(decisions: DataFrame) -> list[Latency]:
    timed = decisions.where(
        "has_prepare and begin_ms >= 0 and complete_ms is not null and status != 'without partitions'"
    )
    rows = (
        timed.groupBy("prefix", "commit")
        .agg(
            F.count("*").alias("decisions"),
            *_percentiles("application", F.col("prepare_ms") - F.col("begin_ms")),
            *_percentiles("markers", F.col("complete_ms") - F.col("prepare_ms")),
        )
        .orderBy("prefix", "commit")
        .collect()
    )
    return [
        Latency(
            row["prefix"],
            row["commit"],
            row["decisions"],
            tuple(row[f"application{share}"] for share in PERCENTILES),
            tuple(row[f"markers{share}"] for share in PERCENTILES),
        )
        for row in rows
    ]


def _percentiles(name: str, value: Column) -> list[Column]:
    return [F.percentile(value, share).alias(f"{name}{share}") for share in PERCENTILES]


def _churn(read: DataFrame) -> list[Churn]:
    transitions = read.where("transition is not null").select("transition.*")
    rows = (
        transitions.groupBy("transactional_id")
        .agg(
            F.count_if(F.col("state") == "Empty").alias("initializations"),
            F.countDistinct("producer_id", "producer_epoch").alias("identities"),
            F.count("*").alias("transitions"),
        )
        .orderBy(F.desc("initializations"), F.desc("identities"), "transactional_id")
        .limit(IDS_MAX)
        .collect()
    )
    return [Churn(*row) for row in rows]
