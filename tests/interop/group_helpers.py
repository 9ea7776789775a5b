"""Topics, records and group members on both brokers, for tests of Kafka's tools."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.interop.drivers.base import TIMEOUT_S, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver, GroupConsumer
    from tests.support.tool_comparison import ToolComparison

PROTOCOLS = ("classic", "consumer")
PARTITIONS = [0, 1]
WRITTEN_MS = 1_750_000_000_000
"""Timestamp of the first record in milliseconds. Each further record is one second later."""


def make_topic(pair: ToolComparison, name: str) -> None:
    retention = ("--config", "retention.ms=-1")  # the timestamps of the records are in the past
    assert pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "2", *retention)[0] == "exit 0"
    # The response to a creation does not wait for the leaders. This tool waits, and some of the others do not.
    assert pair.same("kafka-get-offsets", "--topic", name) == ["exit 0", f"{name}:0:0", f"{name}:1:0"]


def write_records(drivers: Callable[[str], Driver], bootstrap: str, topic: str, count: int) -> None:
    producer = drivers("confluent-kafka").producer(bootstrap, ProducerOptions())
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=number % 2, timestamp=WRITTEN_MS + 1_000 * number)
    producer.flush()
    producer.close()


def read_with_members(members: list[GroupConsumer], count: int) -> None:
    received = 0
    deadline = time.monotonic() + TIMEOUT_S
    while received < count or sum(len(member.assigned()) for member in members) < len(PARTITIONS):
        assert time.monotonic() < deadline, f"{received} of {count} records"
        received += sum(len(member.poll(0.1)) for member in members)
