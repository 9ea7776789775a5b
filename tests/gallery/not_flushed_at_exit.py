"""The application ends while records are in the buffer of its producer: they are lost without an error.

The application has to flush the producer before it ends.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)
LINGER_MS = 60_000


def buggy(config: dict[str, object], topic: str) -> None:
    producer = Producer(config)
    producer.produce(topic, b"42")


def correct(config: dict[str, object], topic: str) -> None:
    producer = Producer(config)
    producer.produce(topic, b"42")
    producer.flush()


@pytest.mark.parametrize("application", [pytest.param(buggy, marks=BUG), correct])
def test_record_is_written_when_the_application_has_ended(
    kafka: Kafka, application: Callable[[dict[str, object], str], None]
) -> None:
    topic = kafka.topic()
    application(kafka.client_config("confluent-kafka") | {"linger.ms": LINGER_MS}, topic)
    assert kafka.values(topic) == [b"42"]
