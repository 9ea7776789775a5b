"""The offset of an input is committed before the delivery of the output is known: a failed delivery loses the record.

The application has to wait for the delivery, and to check its result, before it commits the offset.
"""

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)


class Copy:
    """Copy records from one topic to another."""

    def __init__(self, kafka: Kafka) -> None:
        self.config = kafka.client_config("confluent-kafka")
        self.source, self.target = kafka.topic("source"), kafka.topic("target")
        group = {"group.id": kafka.group(), "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer_config = self.config | group
        producer = Producer(self.config)
        producer.produce(self.source, b"42")
        producer.flush()

    def run(self, *, awaits_delivery: bool) -> None:
        """Copy one record."""
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error)

        producer, consumer = Producer(self.config), Consumer(self.consumer_config)
        consumer.subscribe([self.source])
        record = consumer.poll(10)
        if record is not None:
            producer.produce(self.target, record.value(), on_delivery=delivered)
            if awaits_delivery:
                producer.flush()
            if not errors:
                consumer.commit(message=record, asynchronous=False)
        producer.flush()
        consumer.close()


@pytest.mark.parametrize(
    "awaits_delivery",
    [pytest.param(False, marks=BUG), True],
    ids=["buggy", "correct"],
)
def test_record_is_copied_in_spite_of_a_failed_delivery(kafka: Kafka, awaits_delivery: bool) -> None:
    copy = Copy(kafka)
    kafka.faults.on("Produce", topic=copy.target, times=1).error("MESSAGE_TOO_LARGE")
    for _ in range(2):
        copy.run(awaits_delivery=awaits_delivery)
    assert kafka.values(copy.target) == [b"42"]
