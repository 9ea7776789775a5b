"""Kafka Streams with exactly_once_v2 counts words exactly, although it is killed in its transactions."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import ProducerOptions
from tests.interop.drivers.java import java_command
from tests.interop.drivers.line_process import LineProcess
from tests.support.jars import PREVIOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.interop.drivers.base import Driver, Message

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

STORE_SUPPLIERS = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers"
SOURCE = Path(__file__).parent / "java" / "WordCount.java"
WORDS = ("snapshot", "epoch", "marker", "fence", "offset", "leader", "quorum")
PARTITIONS = [0, 1]
LINES = 400
WORDS_A_LINE = 5
RUNS = 3
LONGEST_S = 60.0
CLASSIC_GROUP: Mapping[str, object] = {
    "consumer.group.instance.id": "one",
    "consumer.session.timeout.ms": 6_000,
    "consumer.heartbeat.interval.ms": 500,
}


class WordCount:
    """The application. With a classic group, its next run has the same group instance id and transactional ids."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        output: str,
        directory: Path,
        group: Mapping[str, object] = CLASSIC_GROUP,
    ) -> None:
        properties = {
            "application.id": f"count-{source}",
            "bootstrap.servers": bootstrap,
            "state.dir": str(directory),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 100,
            "num.stream.threads": 2,
            "replication.factor": 1,
            "repartition.purge.interval.ms": 1_000,
            "statestore.cache.max.bytes": 0,  # each count is written
            "dsl.store.suppliers.class": f"{STORE_SUPPLIERS}$InMemoryDslStoreSuppliers",
            "consumer.auto.offset.reset": "earliest",
            "producer.transaction.timeout.ms": 10_000,
            **group,
        }
        named = (f"{name}={value}" for name, value in properties.items())
        self.process = LineProcess(*java_command(PREVIOUS), str(SOURCE), source, output, *named)


class Text:
    """Lines that are written in several parts, with the number of occurrences of each word."""

    def __init__(self, driver: Driver, bootstrap: str, topic: str) -> None:
        self._producer = driver.producer(bootstrap, ProducerOptions(idempotent=True))
        self._topic = topic
        self._lines = 0
        self.counts: Counter[str] = Counter()

    def write(self, lines: int) -> None:
        for number in range(self._lines, self._lines + lines):
            words = [WORDS[(number * 3 + place * place) % len(WORDS)] for place in range(WORDS_A_LINE)]
            self.counts.update(words)
            self._producer.send(self._topic, " ".join(words).encode(), partition=number % 2)
        self._producer.flush()
        self._lines += lines


def await_counts(driver: Driver, bootstrap: str, topic: str, count: int) -> list[Message]:
    """Wait for `count` committed records of the output topic, and return them."""
    deadline = time.monotonic() + LONGEST_S
    while len(messages := driver.consume(bootstrap, topic, PARTITIONS, "read_committed")) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} counts"
    return messages


@pytest.mark.feature("Kafka Streams, exactly_once_v2: exact word counts after a killed instance", client="Java 4.3")
def test_words_are_counted_exactly_once(
    drivers: Callable[[str], Driver], bootstrap: str, topic: str, other_topic: str, tmp_path: Path
) -> None:
    driver = drivers("confluent-kafka")
    text = Text(driver, bootstrap, topic)
    for run in range(1, RUNS + 1):
        application = WordCount(bootstrap, topic, other_topic, tmp_path)
        before = text.counts.total()
        for _ in range(4):  # it is killed before it has processed all lines
            text.write(LINES // 4)
            await_counts(driver, bootstrap, other_topic, before + 1)
        if run < RUNS:
            application.process.kill()
    messages = await_counts(driver, bootstrap, other_topic, text.counts.total())
    application.process.close()
    counts = defaultdict(list)
    for message in messages:
        assert message.key is not None
        assert message.value is not None
        counts[message.key.decode()].append(int(message.value))
    assert counts == {word: list(range(1, count + 1)) for word, count in text.counts.items()}
    assert len(driver.consume(bootstrap, other_topic, PARTITIONS, "read_committed")) == text.counts.total()
