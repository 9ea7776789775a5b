"""``make brokers-per-host``: serve small requests with one, two, three and four brokers on this host.

A broker is one event loop, so it uses one core. The producers send each record in a request of its own, so that the
brokers are the bottleneck, to partitions without replicas. They use this host, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from benchmarks.workloads import create_topic
from odradek import LocalCluster
from tests.support.kafka_broker import process_usage

COUNTS = (1, 2, 3, 4)
PARTITIONS = 12
PRODUCERS = 2
SECONDS = 10.0
SETTINGS = {"default.replication.factor": 1, "min.insync.replicas": 1}
PRODUCER = """
import statistics, sys, time
from confluent_kafka import Producer
bootstrap, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
one_each = {"batch.num.messages": 1, "linger.ms": 0, "queue.buffering.max.messages": 200, "acks": "all"}
producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **one_each})
latencies = []
def delivered(error, message):
    assert error is None, error
    latencies.append(message.latency())
end = time.monotonic() + seconds
number = 0
while time.monotonic() < end:
    try:
        producer.produce(topic, b"x" * 100, partition=number % 12, on_delivery=delivered)
        number += 1
    except BufferError:
        producer.poll(0.01)
    producer.poll(0)
assert producer.flush(60) == 0
print(len(latencies), statistics.median(latencies) * 1_000)
"""
"""Program that prints the number of acknowledged records and their median latency in milliseconds."""


def measure(brokers: int) -> tuple[float, float, float]:
    """Return records per second, CPU seconds of all brokers per second, and the median latency in milliseconds."""
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
        LocalCluster(brokers, directory=directory, settings=SETTINGS) as cluster,
    ):
        create_topic(cluster.bootstrap, "t", PARTITIONS)
        run(cluster.bootstrap, 1.0)  # connections and logs are open after that
        before = [process_usage(cluster.pid(node_id)).cpu_seconds for node_id in cluster.node_ids]
        began = time.perf_counter()
        results = run(cluster.bootstrap, SECONDS)
        took_s = time.perf_counter() - began
        used = sum(process_usage(cluster.pid(node_id)).cpu_seconds for node_id in cluster.node_ids) - sum(before)
    return sum(count for count, _ in results) / took_s, used / took_s, max(latency for _, latency in results)


def run(bootstrap: str, seconds: float) -> list[tuple[int, float]]:
    """Run the producers. Return the records and the median latency of each."""
    command = [sys.executable, "-c", PRODUCER, bootstrap, "t", str(seconds)]
    producers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PRODUCERS)]
    results = []
    for producer in producers:
        output, _ = producer.communicate()
        if producer.returncode:
            raise RuntimeError(f"a producer failed with exit code {producer.returncode}")
        count, latency = output.split()
        results.append((int(count), float(latency)))
    return results


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
