"""Structured Streaming job: flights from Kafka to Parquet, delays per carrier and origin to a Kafka topic.

It uses Spark's own Kafka connector. The only option that concerns transactions is ``kafka.isolation.level``. The job
runs as part of the demo, or separately with any broker and any Spark master::

    python -m odradek.pipeline.spark.delays_job --bootstrap localhost:9092 --master 'local[2]' --out build/delays
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.client import InvalidArgument
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.spark import transforms
from odradek.pipeline.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "8 seconds"
"""Interval of the micro-batches of both queries. Each one costs CPU time, however few rows it has."""
ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Brokers, topics and output directory of the job."""

    access: Access
    flights_topic: str
    delays_topic: str
    out: str

    @property
    def rows(self) -> str:
        """Directory of the Parquet files."""
        return f"{self.out}/rows"


def records(spark: SparkSession, options: JobOptions, topic: str, isolation: str = ISOLATION) -> DataFrame:
    """Return the present records of a topic, with headers, as a batch DataFrame."""
    settings = {**options.access.spark(), "kafka.isolation.level": isolation, "subscribe": topic}
    return spark.read.format("kafka").options(**settings).option("includeHeaders", value=True).load()


def start_job(spark: SparkSession, options: JobOptions) -> tuple[StreamingQuery, StreamingQuery]:
    """Start the two queries: rows to Parquet, delays to Kafka. Both continue from their checkpoints under `out`."""
    source = (
        spark.readStream.format("kafka")
        .options(**options.access.spark())
        .option("kafka.isolation.level", ISOLATION)
        .option("subscribe", options.flights_topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", value=True)
        .load()
    )
    rows = transforms.flights(source)
    to_parquet = (
        rows.writeStream.queryName("rows")
        .format("parquet")
        .option("path", options.rows)
        .option("checkpointLocation", f"{options.out}/checkpoints/rows")
        .trigger(processingTime=TRIGGER)
    )
    to_kafka = (
        transforms.as_messages(transforms.delays(rows))
        .writeStream.queryName("delays")
        .format("kafka")
        .outputMode("update")
        .options(**options.access.spark())
        .option("topic", options.delays_topic)
        .option("checkpointLocation", f"{options.out}/checkpoints/delays")
        .trigger(processingTime=TRIGGER)
    )
    return to_parquet.start(), to_kafka.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="brokers: HOST:PORT")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="client properties, in Kafka's format")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--flights-topic", default="flights", help="topic to read (default: %(default)s)")
    parser.add_argument("--delays-topic", default="delays", help="topic to write (default: %(default)s)")
    parser.add_argument(
        "--out", default="build/delays", help="directory for Parquet files and checkpoints (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        access = Access.of_file(arguments.bootstrap, arguments.command_config)
    except InvalidArgument as error:
        parser.error(str(error))
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    spark = start_session("flight delays", arguments.master, console=Path(arguments.out) / "spark.log")
    start_job(spark, JobOptions(access, arguments.flights_topic, arguments.delays_topic, arguments.out))
    try:
        spark.streams.awaitAnyTermination()
    except KeyboardInterrupt:
        for query in spark.streams.active:
            query.stop()


if __name__ == "__main__":
    main()
