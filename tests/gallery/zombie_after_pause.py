"""An instance that was paused continues after its successor has done the work: the result is there twice.

With a transactional id that both instances derive from their input, the successor fences the paused instance. With an
id of each instance, nothing does.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)


def instance(kafka: Kafka, transactional_id: str) -> Producer:
    producer = Producer(kafka.client_config("confluent-kafka") | {"transactional.id": transactional_id})
    producer.init_transactions()
    return producer


def buggy(kafka: Kafka) -> tuple[str, str]:
    return kafka.transactional_id("instance-1"), kafka.transactional_id("instance-2")


def correct(kafka: Kafka) -> tuple[str, str]:
    of_partition = kafka.transactional_id("orders-0")
    return of_partition, of_partition


@pytest.mark.parametrize("ids_of", [pytest.param(buggy, marks=BUG), correct])
def test_paused_instance_writes_nothing_after_its_successor(
    kafka: Kafka, ids_of: Callable[[Kafka], tuple[str, str]]
) -> None:
    topic, (first_id, second_id) = kafka.topic(), ids_of(kafka)
    paused = instance(kafka, first_id)
    paused.begin_transaction()
    successor = instance(kafka, second_id)  # the group has removed the paused instance
    successor.begin_transaction()
    successor.produce(topic, b"42")
    successor.commit_transaction()
    try:
        paused.produce(topic, b"42")
        paused.commit_transaction(10)
    except KafkaException as error:
        if not error.args[0].fatal():
            raise
    assert kafka.values(topic) == [b"42"]
