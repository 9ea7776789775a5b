"""The Structured Streaming job: flights from Kafka to Parquet, delays per carrier and origin back to Kafka.

Stock connector, stock options; ``kafka.isolation.level`` is the only thing that it is told about transactions. Runs as a
part of the demo, or by itself against any broker and any Spark master::

    python -m odradek.pipeline.spark.delays_job --bootstrap localhost:9092 --master 'local[2]' --out build/delays
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.spark import transforms
from odradek.pipeline.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "2 seconds"
ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the job reads and writes."""

    bootstrap: str
    flights_topic: str
    delays_topic: str
    out: str

    @property
    def rows(self) -> str:
        return f"{self.out}/rows"


def records(spark: SparkSession, places: Places, topic: str, isolation: str = ISOLATION) -> DataFrame:
    """All that a topic holds now."""
    options = {"kafka.bootstrap.servers": places.bootstrap, "kafka.isolation.level": isolation, "subscribe": topic}
    return spark.read.format("kafka").options(**options).option("includeHeaders", value=True).load()


def start_job(spark: SparkSession, places: Places) -> tuple[StreamingQuery, StreamingQuery]:
    """Start the two queries: rows to Parquet, delays to Kafka. Both continue from their checkpoints under ``out``."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", places.bootstrap)
        .option("kafka.isolation.level", ISOLATION)
        .option("subscribe", places.flights_topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", value=True)
        .load()
    )
    rows = transforms.flights(source)
    to_parquet = (
        rows.writeStream.queryName("rows")
        .format("parquet")
        .option("path", places.rows)
        .option("checkpointLocation", f"{places.out}/checkpoints/rows")
        .trigger(processingTime=TRIGGER)
    )
    to_kafka = (
        transforms.as_messages(transforms.delays(rows))
        .writeStream.queryName("delays")
        .format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", places.bootstrap)
        .option("topic", places.delays_topic)
        .option("checkpointLocation", f"{places.out}/checkpoints/delays")
        .trigger(processingTime=TRIGGER)
    )
    return to_parquet.start(), to_kafka.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="broker: HOST:PORT")
    parser.add_argument("--master", default="local[2]", help="any Spark master (default: %(default)s)")
    parser.add_argument("--flights-topic", default="flights", help="topic to read (default: %(default)s)")
    parser.add_argument("--delays-topic", default="delays", help="topic to write (default: %(default)s)")
    parser.add_argument("--out", default="build/delays", help="rows and checkpoints (default: %(default)s)")
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    spark = start_session("flight delays", arguments.master, console=Path(arguments.out) / "spark.log")
    start_job(spark, Places(arguments.bootstrap, arguments.flights_topic, arguments.delays_topic, arguments.out))
    try:
        spark.streams.awaitAnyTermination()
    except KeyboardInterrupt:
        for query in spark.streams.active:
            query.stop()


if __name__ == "__main__":
    main()
