"""A consumer reads records of aborted transactions, because `read_uncommitted` is the default of its library.

The consumer has to set the isolation level `read_committed`.
"""

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)
BUGGY: dict[str, str] = {}
CORRECT = {"isolation_level": "read_committed"}


def write(kafka: Kafka, topic: str) -> None:
    """Abort one transaction, and commit another one."""
    producer = Producer(kafka.client_config("confluent-kafka") | {"transactional.id": kafka.transactional_id()})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction()


@pytest.mark.parametrize(
    "isolation",
    [pytest.param(BUGGY, marks=BUG), CORRECT],
    ids=["buggy", "correct"],
)
async def test_first_record_is_a_committed_one(kafka: Kafka, isolation: dict[str, str]) -> None:
    topic = kafka.topic()
    write(kafka, topic)
    config = kafka.client_config("aiokafka") | {"auto_offset_reset": "earliest"} | isolation
    async with AIOKafkaConsumer(topic, **config) as consumer:
        assert (await consumer.getone()).value == b"committed"
