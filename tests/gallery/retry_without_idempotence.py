"""A producer without idempotence sends a batch again whose response was lost: the log has it twice.

An idempotent producer numbers its batches, and the broker recognizes the second one.
"""

import pytest
from confluent_kafka import Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)


@pytest.mark.parametrize(
    "idempotent",
    [pytest.param(False, marks=BUG), True],
    ids=["buggy", "correct"],
)
def test_record_is_written_once(kafka: Kafka, idempotent: bool) -> None:
    topic = kafka.topic()
    producer = Producer(kafka.client_config("confluent-kafka") | {"enable.idempotence": idempotent, "acks": "all"})
    with kafka.faults.on("Produce", topic=topic, times=1).disconnect("after") as rule:
        producer.produce(topic, b"42")
        assert producer.flush(20) == 0
        assert rule.injected == 1
    assert kafka.values(topic) == [b"42"]
