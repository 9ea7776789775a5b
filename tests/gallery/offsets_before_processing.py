"""Offsets are committed before the records are processed: a failure during the processing loses a record.

The offset has to be committed after the record is processed.
"""

import pytest
from confluent_kafka import Consumer, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)


class Failed(Exception):
    """The process of the application has failed."""


class Application:
    """Process the records of a topic. The first attempt at each record fails."""

    def __init__(self, kafka: Kafka) -> None:
        config = kafka.client_config("confluent-kafka")
        self.topic = kafka.topic()
        group = {"group.id": kafka.group(), "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer_config = config | group
        self.processed: list[bytes | None] = []
        self.attempts = 0
        producer = Producer(config)
        producer.produce(self.topic, b"42")
        producer.flush()

    def process(self, value: bytes | None) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise Failed
        self.processed.append(value)

    def run(self, *, commit_first: bool) -> None:
        """Process one record."""
        consumer = Consumer(self.consumer_config)
        consumer.subscribe([self.topic])
        try:
            record = consumer.poll(10)
            if record is not None:
                if commit_first:
                    consumer.commit(message=record, asynchronous=False)
                self.process(record.value())
                if not commit_first:
                    consumer.commit(message=record, asynchronous=False)
        except Failed:
            pass
        finally:
            consumer.close()


@pytest.mark.parametrize(
    "commit_first",
    [pytest.param(True, marks=BUG), False],
    ids=["buggy", "correct"],
)
def test_record_is_processed_after_a_failure(kafka: Kafka, commit_first: bool) -> None:
    application = Application(kafka)
    for _ in range(2):
        application.run(commit_first=commit_first)
    assert application.processed == [b"42"]
