"""Kafka's own tools, the same command against both brokers in the same run: what they print must be the same.

Nothing that Kafka prints is stored. What must differ (topic ids, producer ids, times) is rubbed out of both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, Driver, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.side_by_side import SideBySide

TOOLS = "Kafka's tools 4.3"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.feature("kafka-topics", client=TOOLS)
def test_kafka_topics(pair: SideBySide, name: str) -> None:
    create = ("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=60000")
    assert pair.same("kafka-topics", *create)[0] == "exit 0"
    assert len(pair.same("kafka-topics", "--describe", "--topic", name)) == 5
    assert pair.same("kafka-topics", *create)[0] == "exit 1"
    assert pair.same("kafka-topics", "--alter", "--topic", name, "--partitions", "5")[0] == "exit 0"
    assert pair.same("kafka-topics", "--alter", "--topic", name, "--partitions", "2")[0] == "exit 1"
    assert len(pair.same("kafka-topics", "--describe", "--topic", name)) == 7
    assert (
        pair.same("kafka-topics", "--create", "--topic", f"{name}-bad", "--config", "retention.ms=soon")[0] == "exit 1"
    )
    assert pair.same("kafka-topics", "--create", "--topic", "not/a/name")[0] == "exit 1"
    assert pair.same("kafka-topics", "--delete", "--topic", name)[0] == "exit 0"
    assert pair.same("kafka-topics", "--describe", "--topic", name)[0] == "exit 1"


@pytest.mark.feature("kafka-console-producer", client=TOOLS)
def test_console_producer_and_get_offsets(pair: SideBySide, name: str, drivers: Callable[[str], Driver]) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    lines = "".join(f"key{number}:value {number}\n" for number in range(50))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    assert pair.same("kafka-console-producer", "--topic", name, *properties, stdin=lines)[0] == "exit 0"
    for bootstrap in pair.bootstraps.values():
        found = drivers("confluent-kafka").consume(bootstrap, name, [0], "read_committed")
        assert [(message.key, message.value) for message in found] == [
            (b"key%d" % number, b"value %d" % number) for number in range(50)
        ]


@pytest.mark.feature("kafka-get-offsets", client=TOOLS)
def test_get_offsets(pair: SideBySide, name: str, drivers: Callable[[str], Driver]) -> None:
    kept = ("--config", "retention.ms=-1")  # the records below are dated in the past
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "2", *kept)
    for bootstrap in pair.bootstraps.values():
        producer = drivers("confluent-kafka").producer(bootstrap, ProducerOptions())
        for number in range(10):
            producer.send(name, b"x", partition=number % 2, timestamp=1_750_000_000_000 + 1_000 * number)
        producer.flush()
    for moment in ("-1", "-2", "-3", "earliest", "max-timestamp", "1750000004000", "1750000004500", "1999999999999"):
        assert pair.same("kafka-get-offsets", "--topic", name, "--time", moment)[0] == "exit 0"


@pytest.mark.feature("kafka-producer-perf-test, with and without transactions", client=TOOLS)
@pytest.mark.parametrize("transactional", [False, True])
def test_producer_performance(
    pair: SideBySide, name: str, drivers: Callable[[str], Driver], transactional: bool
) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    load = ("--topic", name, "--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    extra = ("--transactional-id", name, "--transaction-duration-ms", "50") if transactional else ()
    for broker, bootstrap in pair.bootstraps.items():
        finished = pair.tools.run(
            "kafka-producer-perf-test", *load, *extra, "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"
        )
        assert finished.returncode == 0, (broker, finished.stdout, finished.stderr)
        assert "5000 records sent" in finished.stdout
        assert len(drivers("confluent-kafka").consume(bootstrap, name, [0], "read_committed")) == 5_000


def open_transaction(driver: Driver, bootstrap: str, topic: str) -> None:
    producer = driver.producer(
        bootstrap, ProducerOptions(transactional_id=f"{topic}-id", transaction_timeout_ms=600_000)
    )
    producer.init()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()


@pytest.mark.feature("kafka-transactions: list, describe, describe-producers, abort", client=TOOLS)
def test_kafka_transactions(pair: SideBySide, name: str, drivers: Callable[[str], Driver]) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    for bootstrap in pair.bootstraps.values():
        open_transaction(drivers("Java 4.3"), bootstrap, name)
    for arguments in (("list",), ("describe", "--transactional-id", f"{name}-id")):
        rows = {
            broker: columns(found, f"{name}-id")
            for broker, found in pair.both("kafka-transactions", *arguments).items()
        }
        assert rows["odradek"] == rows["kafka"]
    producers = pair.both("kafka-transactions", "describe-producers", "--topic", name, "--partition", "0")
    assert [len(found) for found in producers.values()] == [3, 3]
    assert producers["odradek"][:2] == producers["kafka"][:2]
    for bootstrap in pair.bootstraps.values():
        start = ("--topic", name, "--partition", "0", "--start-offset", "0")
        finished = pair.tools.run("kafka-transactions", "--bootstrap-server", bootstrap, "abort", *start)
        assert finished.returncode == 0, finished.stderr
        wait_for_end(drivers("confluent-kafka"), bootstrap, name)


def columns(lines: list[str], transactional_id: str) -> list[list[str]]:
    """Header and the row of one id, less the producer id and the times, which must differ."""
    header = lines[1].split()
    rows = [line.split() for line in lines[2:] if transactional_id in line.split()]
    assert len(rows) == 1, lines
    differing = {"ProducerId", "CurrentTransactionStartTimeMs", "TransactionDurationMs"}
    return [header, [value for title, value in zip(header, rows[0], strict=True) if title not in differing]]


def wait_for_end(driver: Driver, bootstrap: str, topic: str) -> None:
    """The aborted transaction no longer holds readers back: something written behind it is read."""
    producer = driver.producer(bootstrap, ProducerOptions())
    producer.send(topic, b"behind")
    producer.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while [message.value for message in driver.consume(bootstrap, topic, [0], "read_committed")] != [b"behind"]:
        assert time.monotonic() < deadline
