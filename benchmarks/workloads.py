"""Client workloads. Both systems get the same commands and client versions."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.jars import PREVIOUS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARTITIONS = 6
RECORD_BYTES = 1_000
CLIENT_TIMEOUT_S = 120.0
CONSUME_BATCH = 10_000
NO_PAUSE = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_097_151}
"""Consumer settings against pauses of the client: librdkafka stops fetching for a second if its own queue is full."""
RATE = re.compile(r"(?P<count>\d+) records sent, (?P<rate>[\d.,]+) records/sec")
WARM_UP_TRANSACTIONS = 20


@dataclass(frozen=True)
class Latencies:
    """Operations per second over all producers, and their latencies in milliseconds."""

    per_second: float
    p50_ms: float
    p99_ms: float


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS, *, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(CLIENT_TIMEOUT_S)


def transactional(bootstrap: str, transactional_id: str, settings: Mapping[str, str] | None = None) -> Producer:
    names = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    producer = Producer({**names, "linger.ms": 0, "log_level": 0, **(settings or {})})
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def commit_one(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"x" * 100)
    producer.commit_transaction(CLIENT_TIMEOUT_S)


def produce(
    bootstrap: str, topic: str, records: int, record_bytes: int = RECORD_BYTES, *, client_file: Path | None = None
) -> float:
    """Run Kafka's ProducerPerformance with acks=all. Return MB/s (1 MB = 1,048,576 bytes) of the whole run.

    Raise RuntimeError if it failed, or if a record was not acknowledged.
    """
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)]
    arguments += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"]
    arguments += [] if client_file is None else ["--command-config", str(client_file)]
    command = ["java", "-Xmx512M", "-cp", f"{PREVIOUS}/*", "org.apache.kafka.tools.ProducerPerformance", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(RATE.finditer(finished.stdout))
    if finished.returncode or not found or int(found[-1]["count"]) != records:
        raise RuntimeError(f"ProducerPerformance failed:\n{finished.stdout[-2000:]}\n{finished.stderr[-2000:]}")
    return float(found[-1]["rate"].replace(",", "")) * record_bytes / 2**20


def latencies(bootstrap: str, topic: str, per_second: int, seconds: float, warm_up_seconds: float) -> Latencies:
    """Send at a steady rate with linger 0 and acks=all. Return the latencies that librdkafka measures.

    Raise RuntimeError if a record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    times: list[float] = []
    failed: list[str] = []
    measuring = False

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failed.append(str(error))
        elif measuring:
            times.append(1e3 * (message.latency() or 0.0))

    began = time.perf_counter()
    total = round(per_second * (seconds + warm_up_seconds))
    for number in range(total):
        measuring = number > per_second * warm_up_seconds
        producer.produce(topic, b"x" * 100, partition=number % PARTITIONS, on_delivery=delivered)
        while (left := began + (number + 1) / per_second - time.perf_counter()) > 0:
            producer.poll(left)
        producer.poll(0)
    if producer.flush(CLIENT_TIMEOUT_S) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1]}")
    elapsed = time.perf_counter() - began
    times.sort()
    return Latencies(total / elapsed, times[len(times) // 2], times[int(len(times) * 0.99)])


def consume(bootstrap: str, topic: str, records: int, *, settings: Mapping[str, str] | None = None) -> float:
    """Read all records of the topic from assigned partitions. Return MB/s.

    Raise RuntimeError if the records do not arrive within CLIENT_TIMEOUT_S, or if the consumer reports an error.
    """
    common = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **NO_PAUSE}
    consumer = Consumer({**common, **(settings or {})})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen, size, started = 0, 0, time.perf_counter()
    try:
        while seen < records:
            messages = consumer.consume(CONSUME_BATCH, timeout=1.0)
            if time.perf_counter() - started > CLIENT_TIMEOUT_S:
                raise RuntimeError(f"only {seen} of {records} records arrived within {CLIENT_TIMEOUT_S:.0f} s")
            for message in messages:
                if message.error():
                    raise RuntimeError(str(message.error()))
                size += len(message)
            seen += len(messages)
        elapsed = time.perf_counter() - started
    finally:
        consumer.close()
    return size / 2**20 / elapsed


def transactions(
    bootstrap: str, topic: str, producers: int, seconds: float, *, settings: Mapping[str, str] | None = None
) -> Latencies:
    """Commit one-record transactions for `seconds`, with each producer in its own thread. Return the commit latencies.

    Raise RuntimeError if a producer failed.
    """
    clients = [transactional(bootstrap, f"bench-{producers}-{number}", settings) for number in range(producers)]
    times: list[float] = []
    failures: list[BaseException] = []
    barrier = threading.Barrier(producers + 1)
    end = 0.0

    def run(producer: Producer) -> None:
        try:
            for _ in range(WARM_UP_TRANSACTIONS):
                commit_one(producer, topic)
            barrier.wait()
            barrier.wait()
            while (began := time.perf_counter()) < end:
                commit_one(producer, topic)
                times.append(time.perf_counter() - began)
        except Exception as failed:
            failures.append(failed)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        barrier.wait()
        started = time.perf_counter()
        end = started + seconds
        barrier.wait()
    except threading.BrokenBarrierError:
        pass
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"a transactional producer failed: {failures[0]}") from failures[0]
    times.sort()
    elapsed = time.perf_counter() - started
    return Latencies(len(times) / elapsed, 1e3 * times[len(times) // 2], 1e3 * times[int(len(times) * 0.99)])
