"""The callback of a rebalance commits the positions of the consumer, which include records in work: they are lost.

The application has to commit the offsets of the records that it has processed.
"""

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=AssertionError, strict=True)
RECORDS = 5
PROCESSED_BEFORE_REVOKE = 2


class Application:
    """Process the records of a topic in batches."""

    def __init__(self, kafka: Kafka, *, commits_positions: bool) -> None:
        config = kafka.client_config("confluent-kafka")
        self.topic = kafka.topic()
        self.commits_positions = commits_positions
        group = {"group.id": kafka.group(), "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer_config = config | group
        self.processed: list[bytes] = []
        producer = Producer(config)
        for number in range(RECORDS):
            producer.produce(self.topic, b"%d" % number)
        producer.flush()

    def run(self, limit: int) -> None:
        """Read a batch, and process up to `limit` records before the partitions are revoked."""
        done: list[Message] = []

        def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            positions = [position for position in consumer.position(partitions) if position.offset >= 0]
            if self.commits_positions and positions:
                consumer.commit(offsets=positions, asynchronous=False)
            elif done:
                consumer.commit(message=done[-1], asynchronous=False)

        consumer = Consumer(self.consumer_config)
        consumer.subscribe([self.topic], on_revoke=on_revoke)
        batch: list[Message] = []
        while len(batch) + len(self.processed) < RECORDS and (record := consumer.poll(10)) is not None:
            batch.append(record)
        for record in batch[:limit]:
            self.processed.append(record.value() or b"")
            done.append(record)
        consumer.close()


@pytest.mark.parametrize(
    "commits_positions",
    [pytest.param(True, marks=BUG), False],
    ids=["buggy", "correct"],
)
def test_all_records_are_processed_after_a_rebalance(kafka: Kafka, commits_positions: bool) -> None:
    application = Application(kafka, commits_positions=commits_positions)
    application.run(PROCESSED_BEFORE_REVOKE)
    application.run(RECORDS)
    assert application.processed == [b"%d" % number for number in range(RECORDS)]
