"""Both generations of the transaction protocol on the same topic at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import Driver, Message, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop

TRANSACTIONS = 40
RECORDS = 3
ABORT_EVERY = 4


def run(driver: Driver, bootstrap: str, topic: str, tag: str, errors: list[BaseException]) -> None:
    try:
        producer = driver.producer(bootstrap, ProducerOptions(transactional_id=f"{topic}-{tag}"))
        producer.init()
        for number in range(TRANSACTIONS):
            producer.begin()
            for index in range(RECORDS):
                producer.send(topic, f"{tag}-{number}-{index}".encode(), partition=number % 2)
            (producer.abort if number % ABORT_EVERY == 0 else producer.commit)()
        producer.close()
    except BaseException as failed:
        errors.append(failed)


def of(messages: list[Message], tag: str) -> list[str]:
    return [text for message in messages if (text := (message.value or b"").decode()).startswith(tag + "-")]


@pytest.mark.feature("TV1 and TV2 producers on one topic at the same time", client="confluent-kafka")
def test_librdkafka_and_java_write_transactions_to_the_same_partitions(
    drivers: Callable[[str], Driver], bootstrap: str, topic: str
) -> None:
    pairs = [("librdkafka", drivers("confluent-kafka")), ("java", drivers("Java 4.4"))]
    errors: list[BaseException] = []
    threads = [threading.Thread(target=run, args=(driver, bootstrap, topic, tag, errors)) for tag, driver in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for reader in (drivers("confluent-kafka"), drivers("Java 4.4")):
        messages_by_partition = {
            partition: reader.consume(bootstrap, topic, [partition], "read_committed") for partition in (0, 1)
        }
        for tag, _ in pairs:
            for partition, messages in messages_by_partition.items():
                committed = [n for n in range(TRANSACTIONS) if n % ABORT_EVERY and n % 2 == partition]
                assert of(messages, tag) == [f"{tag}-{n}-{index}" for n in committed for index in range(RECORDS)]
