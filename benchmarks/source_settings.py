"""Seconds of a streaming query of Spark's own Kafka source, by its fetch options, on Odradek and on Apache Kafka.

The query reads a topic of committed and aborted transactions in many micro-batches, and writes nothing. Each round runs
all options on both brokers, in alternating order.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.pipeline.flights.progress_topic import await_stable
from odradek.pipeline.spark.session import start_session, stop_session
from tests.support.kafka_broker import KafkaBroker
from tests.support.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

TRANSACTIONS = 120
ROWS_PER_TRANSACTION = 100
OFFSETS_PER_BATCH = 600
"""Maximum offsets per micro-batch: the query has about 20 batches."""
OPTIONS = {
    "default options": {},
    "fetch.max.wait.ms=10": {"kafka.fetch.max.wait.ms": "10"},
    "max.poll.records=20000": {"kafka.max.poll.records": "20000"},
    "fetch.max.wait.ms=10, max.poll.records=20000": {
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.poll.records": "20000",
    },
}


def written(bootstrap: str) -> str:
    """Write a topic. One transaction in ten is aborted."""
    topics = Topics(bootstrap, "settings")
    topic, producer = topics.new(), topics.producer("settings")
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        topics.write(topic, [f"{number:08}"] * ROWS_PER_TRANSACTION, producer=producer)
        if number % 10:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    await_stable(Access(bootstrap), {topic: 1})
    return topic


def seconds(spark: SparkSession, bootstrap: str, topic: str, options: dict[str, str]) -> float:
    """Run the query from the beginning of the topic to its end."""
    checkpoint = tempfile.mkdtemp(prefix="settings-")
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        .options(**options)
        .load()
    )
    began = time.monotonic()
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    elapsed = time.monotonic() - began
    shutil.rmtree(checkpoint)
    return elapsed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default: %(default)s)")
    rounds = parser.parse_args(arguments).rounds
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="settings-")))
        cluster = DemoCluster(directory / "data", directory / "broker.log", brokers=1)
        cleanup.callback(cluster.stop)
        kafka = cleanup.enter_context(KafkaBroker(directory / "kafka"))
        systems = {"Odradek": cluster.access.bootstrap, "Apache Kafka": kafka.bootstrap}
        topics = {name: written(bootstrap) for name, bootstrap in systems.items()}
        spark = start_session("settings", "local[2]", console=directory / "spark.log")
        cleanup.callback(stop_session, spark)
        found: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds + 1):
            for label, options in OPTIONS.items():
                for name, bootstrap in systems.items():
                    elapsed = seconds(spark, bootstrap, topics[name], options)
                    if number:  # the first round loads classes
                        found.setdefault((label, name), []).append(elapsed)
    print(f"{'median seconds of ' + str(rounds) + ' rounds':<48}" + "".join(f"{name:>14}" for name in systems))
    for label in OPTIONS:
        print(f"{label:<48}" + "".join(f"{statistics.median(found[label, name]):>14.1f}" for name in systems))
    return 0


if __name__ == "__main__":
    sys.exit(main())
