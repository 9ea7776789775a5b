"""Kafka's tools: a command prints the same output with Odradek and with Apache Kafka.

The output of Kafka is not stored: both brokers run in the test. Values that must differ (topic ids, producer ids,
times) are removed from both outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import Driver, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.feature("kafka-topics: create, alter, describe, list, delete", client=TOOLS)
def test_kafka_topics_prints_the_same(pair: ToolComparison, name: str) -> None:
    create = ("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=60000")
    describe = ("kafka-topics", "--describe", "--topic", name)
    assert pair.same("kafka-topics", *create)[0] == "exit 0"
    pair.until(lambda lines: len(lines) == 5, *describe)  # a broker of Kafka applies the metadata later
    assert len(pair.same(*describe)) == 5
    assert pair.same("kafka-topics", *create)[0] == "exit 1"
    assert pair.same("kafka-topics", "--alter", "--topic", name, "--partitions", "5")[0] == "exit 0"
    pair.until(lambda lines: len(lines) == 7, *describe)
    assert pair.same("kafka-topics", "--alter", "--topic", name, "--partitions", "2")[0] == "exit 1"
    assert len(pair.same(*describe)) == 7
    assert (
        pair.same("kafka-topics", "--create", "--topic", f"{name}-bad", "--config", "retention.ms=soon")[0] == "exit 1"
    )
    assert pair.same("kafka-topics", "--create", "--topic", "not/a/name")[0] == "exit 1"
    listing = ("kafka-topics", "--list")
    assert pair.same(*listing, about=name) == ["exit 0", name]
    for options in (("--topic", name), ("--topic", f"{name[:-1]}."), ("--exclude-internal",)):
        assert pair.same(*listing, *options, about=name) == ["exit 0", name]
    assert pair.same(*listing, "--topic", f"no-{name}") == ["exit 0"]
    for those in ("--topics-with-overrides", "--at-min-isr-partitions", "--under-min-isr-partitions"):
        pair.same("kafka-topics", "--describe", those, about=name)
    for those in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert pair.same("kafka-topics", "--describe", those) == ["exit 0"]
    assert pair.same("kafka-topics", "--delete", "--topic", name)[0] == "exit 0"
    pair.until(lambda lines: lines[0] == "exit 1", *describe)
    assert pair.same(*listing, about=name) == ["exit 0"]
    assert pair.same(*describe)[0] == "exit 1"


@pytest.mark.feature("kafka-console-producer", client=TOOLS)
def test_get_offsets_after_console_producer_prints_the_same(
    pair: ToolComparison, name: str, drivers: Callable[[str], Driver]
) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    lines = "".join(f"key{number}:value {number}\n" for number in range(50))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    assert pair.same("kafka-console-producer", "--topic", name, *properties, stdin=lines)[0] == "exit 0"
    for bootstrap in pair.bootstraps.values():
        messages = drivers("confluent-kafka").consume(bootstrap, name, [0], "read_committed")
        assert [(message.key, message.value) for message in messages] == [
            (b"key%d" % number, b"value %d" % number) for number in range(50)
        ]


@pytest.mark.feature("kafka-get-offsets", client=TOOLS)
def test_get_offsets_prints_the_same(pair: ToolComparison, name: str, drivers: Callable[[str], Driver]) -> None:
    retention = ("--config", "retention.ms=-1")  # the timestamps of the records below are in the past
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "2", *retention)
    for bootstrap in pair.bootstraps.values():
        producer = drivers("confluent-kafka").producer(bootstrap, ProducerOptions())
        for number in range(10):
            producer.send(name, b"x", partition=number % 2, timestamp=1_750_000_000_000 + 1_000 * number)
        producer.flush()
    for moment in ("-1", "-2", "-3", "earliest", "max-timestamp", "1750000004000", "1750000004500", "1999999999999"):
        assert pair.same("kafka-get-offsets", "--topic", name, "--time", moment)[0] == "exit 0"
    expected_line = f"{name}:1:5"
    for which in (("--topic-partitions", f"{name}:1"), ("--topic", name, "--partitions", "1")):
        assert pair.same("kafka-get-offsets", *which) == ["exit 0", expected_line]
    assert expected_line in pair.same("kafka-get-offsets", "--topic", f"{name[:-1]}.", "--exclude-internal-topics")


@pytest.mark.feature("kafka-producer-perf-test, with and without transactions", client=TOOLS)
@pytest.mark.parametrize("transactional", [False, True])
def test_producer_performance_writes_all_records(
    pair: ToolComparison, name: str, drivers: Callable[[str], Driver], transactional: bool
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
