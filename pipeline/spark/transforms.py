"""DataFrame in, DataFrame out: what the flights job computes. Pure: no session, no source, no sink."""

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
    """The value of a record's first header of that name, as text; null when it has none."""
    return F.filter("headers", lambda entry: entry["key"] == name)[0]["value"].cast("string")


def flights(records: DataFrame) -> DataFrame:
    """Kafka records (with headers) -> one row a flight, with the attempt that wrote it and the place in the log."""
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"),
        header("attempt").alias("attempt"),
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
    )
    return parsed.select("flight.*", "attempt", "log_partition", "log_offset")


def delays(rows: DataFrame) -> DataFrame:
    """Flights -> per carrier and origin: flights, mean and 95th percentile of the departure delay in minutes.

    Cancelled flights have no delay: they count as flights and not in mean and percentile. The percentile is the exact,
    interpolated one: its state is a count for each distinct delay, of which there are few.
    """
    return rows.groupBy("carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.mean("dep_delay").alias("mean"),
        F.percentile("dep_delay", HIGH_PERCENTILE).alias("p95"),
    )


def as_messages(table: DataFrame) -> DataFrame:
    """Delays -> key and value for the Kafka sink; one key a group, so that the last record of a key is its state."""
    return table.select(
        F.concat_ws("-", "carrier", "origin").alias("key"),
        F.to_json(F.struct("carrier", "origin", "flights", "mean", "p95")).alias("value"),
    )


def latest_delays(records: DataFrame) -> DataFrame:
    """What the sink's topic says in the end: of each key its last record (a key stays in one partition)."""
    last = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return last.select(F.from_json(F.col("value").cast("string"), DELAYS).alias("group")).select("group.*")


def rows_per_attempt(records: DataFrame) -> DataFrame:
    """Kafka records -> attempt, rows: every attempt that ever reached the log, when read uncommitted."""
    return records.select(header("attempt").alias("attempt")).groupBy("attempt").agg(F.count("*").alias("rows"))
