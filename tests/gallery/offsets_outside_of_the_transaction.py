"""Offsets are committed by the consumer, outside of the transaction that has the results.

If the commit of the offsets fails, the results are committed, and the next run writes them again. The offsets have to
be a part of the transaction.
"""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)
COMMIT_APIS = ("OffsetCommit", "TxnOffsetCommit")


class Copy:
    """Copy records from one topic to another, in transactions."""

    def __init__(self, kafka: Kafka) -> None:
        config = kafka.client_config("confluent-kafka")
        self.source, self.target, self.group = kafka.topic("source"), kafka.topic("target"), kafka.group()
        self.producer = Producer(config | {"transactional.id": kafka.transactional_id()})
        self.producer.init_transactions()
        group = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer_config = config | group
        first = Producer(config)
        first.produce(self.source, b"42")
        first.flush()

    def run(self, *, offsets_in_transaction: bool) -> None:
        """Copy one record. An error ends the run, as a failure of the process would."""
        consumer = Consumer(self.consumer_config)
        consumer.subscribe([self.source])
        try:
            record = consumer.poll(10)
            if record is None:
                return
            self.producer.begin_transaction()
            self.producer.produce(self.target, record.value())
            if offsets_in_transaction:
                positions = consumer.position(consumer.assignment())
                self.producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            self.producer.commit_transaction()
            if not offsets_in_transaction:
                consumer.commit(asynchronous=False)
        except KafkaException:
            if offsets_in_transaction:
                self.producer.abort_transaction()
        finally:
            consumer.close()


@pytest.mark.parametrize(
    "offsets_in_transaction",
    [pytest.param(False, marks=BUG), True],
    ids=["buggy", "correct"],
)
def test_record_is_copied_once(kafka: Kafka, offsets_in_transaction: bool) -> None:
    copy = Copy(kafka)
    rules = [kafka.faults.on(api, times=1).error("INVALID_COMMIT_OFFSET_SIZE") for api in COMMIT_APIS]
    for _ in range(2):
        copy.run(offsets_in_transaction=offsets_in_transaction)
    assert sum(rule.injected for rule in rules) == 1
    assert kafka.values(copy.target) == [b"42"]
