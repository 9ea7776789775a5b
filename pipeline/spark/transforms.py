"""DataFrame transformations of the flights job. All functions are pure: they use no session, source or sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from odradek.pipeline.flights.source import INTEGERS, ROW, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLIGHT = StructType(
    [
        StructField(ROW, IntegerType()),
        *(StructField(name, IntegerType()) for name in INTEGERS),
        *(StructField(name, StringType()) for name in STRINGS),
    ]
)
DELAYS = "carrier string, origin string, flights bigint, mean double, p95 double"
HIGH_PERCENTILE = 0.95


def header(name: str) -> Column:
    """Return the value of a record's first header with this name as text, or null if there is none."""
    return F.filter("headers", lambda entry: entry["key"] == name)[0]["value"].cast("string")


def flights(records: DataFrame) -> DataFrame:
    """Convert Kafka records with headers to one row per flight.

    The additional columns are `attempt`, `log_partition` and `log_offset`: the attempt that wrote the record, and its
    partition and offset.
    """
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"),
        header("attempt").alias("attempt"),
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
    )
    return parsed.select("flight.*", "attempt", "log_partition", "log_offset")


def copies(records: DataFrame) -> DataFrame:
    """Convert records of the exactly-once sink to one row per flight, with `batch` and `run` that wrote it."""
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"),
        header("attempt").alias("attempt"),
        header("batch").cast("int").alias("batch"),
        header("run").cast("int").alias("run"),
    )
    return parsed.select("flight.*", "attempt", "batch", "run")


def delays(rows: DataFrame) -> DataFrame:
    """Return flights, mean and 95th percentile of the departure delay in minutes, per carrier and origin.

    Cancelled flights have no delay: they are included in `flights`, but not in `mean` and `p95`. The percentile is
    exact and interpolated. Its state is one count per distinct delay and group, which is small.
    """
    return rows.groupBy("carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.mean("dep_delay").alias("mean"),
        F.percentile("dep_delay", HIGH_PERCENTILE).alias("p95"),
    )


def as_messages(table: DataFrame) -> DataFrame:
    """Convert delays to keys and values for the Kafka sink.

    The key is carrier and origin. The last record of a key therefore has the final values of its group.
    """
    return table.select(
        F.concat_ws("-", "carrier", "origin").alias("key"),
        F.to_json(F.struct("carrier", "origin", "flights", "mean", "p95")).alias("value"),
    )


def latest_delays(records: DataFrame) -> DataFrame:
    """Return the last record of each key of the delays topic, decoded. All records of a key are in one partition."""
    last = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return last.select(F.from_json(F.col("value").cast("string"), DELAYS).alias("group")).select("group.*")


def rows_per_attempt(records: DataFrame) -> DataFrame:
    """Return the number of records per attempt.

    If `records` were read with read_uncommitted, this includes the attempts that were aborted.
    """
    return records.select(header("attempt").alias("attempt")).groupBy("attempt").agg(F.count("*").alias("rows"))
