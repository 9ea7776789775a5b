"""A lost response of EndTxn is treated as an abort: the application sends the records of a committed transaction again.

The transaction is committed, but the client does not know. The commit has to be repeated, by the same producer.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)
COMMIT_TIMEOUT_S = 1.0
SOCKET_TIMEOUT_MS = 1_500
"""Time-out of a request. After it, the client sends the request again."""


class Payments:
    """Write records in transactions."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.topic = topic
        self.config = kafka.client_config("confluent-kafka") | {
            "transactional.id": kafka.transactional_id(),
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        }
        self.start()

    def start(self) -> None:
        self.producer = Producer(self.config)
        self.producer.init_transactions()

    def send(self) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.topic, b"42")


def buggy(payments: Payments) -> None:
    payments.send()
    try:
        payments.producer.commit_transaction(COMMIT_TIMEOUT_S)
    except KafkaException:
        payments.start()
        payments.send()
        payments.producer.commit_transaction()


def correct(payments: Payments) -> None:
    payments.send()
    while True:
        try:
            payments.producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


@pytest.mark.parametrize("application", [pytest.param(buggy, marks=BUG), correct])
def test_payment_is_committed_once(kafka: Kafka, application: Callable[[Payments], None]) -> None:
    payments = Payments(kafka, kafka.topic())
    with kafka.faults.on("EndTxn", times=1).drop_response() as rule:
        application(payments)
        assert rule.injected == 1
    assert kafka.values(payments.topic) == [b"42"]
