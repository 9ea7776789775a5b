"""``make spark-source``: read one topic with the source `odradek` and with Spark's own Kafka source.

Both run in one Spark session, in alternating rounds. A query aggregates all columns, so that it needs each of them. The
result is the ratio of the median times, and of the CPU times of Spark's processes: JVM and Python workers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark import SparkContext
from pyspark.sql import functions as F  # noqa: N812  Spark's documentation uses this name

from benchmarks.workloads import CLIENT_TIMEOUT_S, create_topic
from odradek import LocalCluster
from odradek.pipeline.spark.session import start_session, stop_session
from odradek.spark import OdradekDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "t"
PARTITIONS = 3
VALUE_BYTES = 100
ROUNDS = 5
SOURCES = ("odradek", "kafka")
SETTINGS = {"default.replication.factor": 1, "min.insync.replicas": 1}
JIT = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
"""Options of the JVM. The session of the tests compiles with C1 alone, which starts faster and runs slower."""


@dataclass(frozen=True)
class Round:
    """Seconds of one query, and CPU seconds of Spark's processes."""

    seconds: float
    cpu_s: float


def fill(bootstrap: str, rows: int) -> None:
    """Write rows of VALUE_BYTES with keys and timestamps. Raise RuntimeError if one is not acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    value = b"x" * (VALUE_BYTES - 8)
    for number in range(rows):
        while True:
            try:
                producer.produce(TOPIC, b"%08d" % number + value, b"key%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(CLIENT_TIMEOUT_S):
        raise RuntimeError("a record was not acknowledged")


def measure(spark: SparkSession, bootstrap: str, kind: str, rows: int) -> Round:
    """Read the topic once. Raise RuntimeError if a row is missing."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "kafka.isolation.level": "read_committed"}
    table = spark.read.format(kind).options(**options).load()
    query = table.agg(
        F.count("*").alias("rows"),
        F.sum(F.length("key") + F.length("value") + F.length("topic")),
        F.sum(F.col("partition") + F.col("offset") + F.col("timestampType")),
        F.max("timestamp"),
    )
    cpu, began = cpu_seconds(), time.perf_counter()
    found = query.collect()[0].rows
    result = Round(time.perf_counter() - began, cpu_seconds() - cpu)
    if found != rows:
        raise RuntimeError(f"{kind} read {found} of {rows} rows")
    return result


def cpu_seconds() -> float:
    """Return the CPU seconds of the JVM and of all Python workers below it, those that ended included."""
    assert SparkContext._gateway is not None
    return _of_tree(SparkContext._gateway.proc.pid)


def _of_tree(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        threads = [Path(f"/proc/{pid}/task/{task.name}/children") for task in Path(f"/proc/{pid}/task").iterdir()]
        children = [child for thread in threads for child in thread.read_text().split()]
    except OSError:
        return 0.0  # the process ended meanwhile
    own = sum(map(int, fields[11:15])) / 100  # user and system time, own and of children that ended, in ticks of 10 ms
    return own + sum(_of_tree(int(child)) for child in children)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make spark-source", description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=300_000, help="rows of the topic (%(default)s)")
    rows = parser.parse_args().rows
    results: dict[str, list[Round]] = {kind: [] for kind in SOURCES}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        LocalCluster(1, directory=directory, settings=SETTINGS) as cluster,
    ):
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        fill(cluster.bootstrap, rows)
        spark = start_session("benchmark", "local[2]", console=Path(directory) / "spark.log", settings=JIT)
        spark.dataSource.register(OdradekDataSource)
        try:
            for number in range(ROUNDS + 1):
                for kind in SOURCES:
                    measured = measure(spark, cluster.bootstrap, kind, rows)
                    if number:  # the first round starts Python workers and compiles
                        results[kind].append(measured)
        finally:
            stop_session(spark)
    print(f"{rows:,} rows of {VALUE_BYTES} bytes, {PARTITIONS} partitions, local[2], median of {ROUNDS} rounds")
    print("| source | seconds | rows per second | CPU seconds of Spark |")
    print("|---|---|---|---|")
    medians = {kind: statistics.median(each.seconds for each in results[kind]) for kind in SOURCES}
    cpu = {kind: statistics.median(each.cpu_s for each in results[kind]) for kind in SOURCES}
    for kind in SOURCES:
        print(f"| {kind} | {medians[kind]:.2f} | {rows / medians[kind]:,.0f} | {cpu[kind]:.2f} |")
    print(f"throughput against Spark's own source: {medians['kafka'] / medians['odradek']:.2f}x; ", end="")
    print(f"rows per CPU second: {cpu['kafka'] / cpu['odradek']:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
