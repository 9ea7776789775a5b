"""``make brokers-per-host``: serve small requests with one, two, three and four brokers on this host.

A broker is one event loop, so it uses one core. The producers send each record in a request of its own, so that the
brokers are the bottleneck, to partitions without replicas. They use this host, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from confluent_kafka import Message, Producer

from benchmarks.workloads import CLIENT_TIMEOUT_S, create_topic
from odradek import LocalCluster
from tests.support.kafka_broker import process_usage

COUNTS = (1, 2, 3, 4)
TOPIC = "t"
PARTITIONS = 12
PRODUCERS = 2
SECONDS = 10.0
SETTINGS = {"default.replication.factor": 1, "min.insync.replicas": 1}
ONE_EACH = {"batch.num.messages": 1, "linger.ms": 0, "queue.buffering.max.messages": 200, "acks": "all"}
"""Configuration of a producer that sends each record in a request of its own."""


def measure(brokers: int) -> tuple[float, float, float]:
    """Return records per second, CPU seconds of all brokers per second, and the median latency in milliseconds."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        LocalCluster(brokers, directory=directory, settings=SETTINGS) as cluster,
    ):
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        run(cluster.bootstrap, 1.0)  # connections and logs are open after that
        before = [process_usage(cluster.pid(node_id)).cpu_seconds for node_id in cluster.node_ids]
        began = time.perf_counter()
        results = run(cluster.bootstrap, SECONDS)
        took_s = time.perf_counter() - began
        used = sum(process_usage(cluster.pid(node_id)).cpu_seconds for node_id in cluster.node_ids) - sum(before)
    return sum(count for count, _ in results) / took_s, used / took_s, max(latency for _, latency in results)


def run(bootstrap: str, seconds: float) -> list[tuple[int, float]]:
    """Run the producers. Return the acknowledged records and the median latency in milliseconds of each."""
    with ProcessPoolExecutor(PRODUCERS, mp_context=get_context("spawn")) as pool:
        return list(pool.map(produce, [bootstrap] * PRODUCERS, [seconds] * PRODUCERS))


def produce(bootstrap: str, seconds: float) -> tuple[int, float]:
    """Send records for `seconds`. Raise RuntimeError if one is not acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **ONE_EACH})
    latencies: list[float] = []
    errors: list[object] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            errors.append(error)
        latencies.append(message.latency() or 0.0)

    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        try:
            producer.produce(TOPIC, b"x" * 100, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    if producer.flush(CLIENT_TIMEOUT_S) or errors:
        raise RuntimeError(f"a record was not acknowledged: {errors[:1]}")
    return len(latencies), statistics.median(latencies) * 1_000


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make brokers-per-host", description=__doc__, epilog="Example: make brokers-per-host ARGS='1 2 8'"
    )
    parser.add_argument("brokers", nargs="*", type=int, default=COUNTS, help="numbers of brokers (1 2 3 4)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {PRODUCERS} producers on the same host, {SECONDS:.0f} s each")
    print("| brokers | requests per second | CPU seconds of the brokers per second | median latency in ms |")
    print("|---|---|---|---|")
    for brokers in options.brokers:
        per_second, used, latency_ms = measure(brokers)
        print(f"| {brokers} | {per_second:,.0f} | {used:.2f} | {latency_ms:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
