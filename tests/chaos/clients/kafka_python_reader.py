"""A consumer with kafka-python: it reads manually assigned partitions from their start."""

from __future__ import annotations

import logging
import sys

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from tests.chaos.clients.common import REQUEST_TIMEOUT_MS, Client, python_settings
from tests.chaos.journal import shorten
from tests.sim.history import FAIL, FETCH, OK

BACKOFF_SECONDS = 0.3
POLL_MS = 300
OFFSET_OUT_OF_RANGE = 1


def connected(client: Client) -> KafkaConsumer | None:
    """Return a consumer, or None if this process has to stop first. The constructor fails while no broker responds."""
    while not client.stopping.is_set():
        try:
            return KafkaConsumer(
                **python_settings(client.spec.access),
                client_id=client.spec.process,
                group_id=None,
                enable_auto_commit=False,
                isolation_level="read_committed" if client.spec.committed else "read_uncommitted",
                auto_offset_reset="none",
                request_timeout_ms=REQUEST_TIMEOUT_MS + 1_000,
                fetch_max_wait_ms=POLL_MS,
                retry_backoff_ms=50,
                metadata_max_age_ms=5_000,
            )
        except (KafkaError, OSError):
            client.stopping.wait(BACKOFF_SECONDS)
    return None


def run(client: Client) -> int:
    consumer = connected(client)
    if consumer is None:
        return 0
    positions = {TopicPartition(topic, index): 0 for topic, index in client.partitions}
    consumer.assign(list(positions))
    for partition in positions:
        consumer.seek(partition, 0)
    while not client.stopping.is_set():
        try:
            batches = consumer.poll(timeout_ms=POLL_MS)
        except OffsetOutOfRangeError as failure:
            for partition in failure.args[0]:
                number = begin(client, partition, positions[partition])
                client.journal.complete(FETCH, number, FAIL, error=OFFSET_OUT_OF_RANGE, reason=repr(failure))
                consumer.seek(partition, positions[partition])
            continue
        except (KafkaError, OSError):
            client.stopping.wait(BACKOFF_SECONDS)
            continue
        for partition, messages in batches.items():
            number = begin(client, partition, positions[partition])
            records = [(message.offset, shorten(message.value)) for message in messages]
            positions[partition] = messages[-1].offset + 1
            client.journal.complete(FETCH, number, OK, records=records, next=positions[partition])
    consumer.close()
    return 0


def begin(client: Client, partition: TopicPartition, position: int) -> int:
    isolation = 1 if client.spec.committed else 0
    fields = {"topic": partition.topic, "partition": partition.partition}
    return client.journal.invoke(FETCH, isolation=isolation, offset=position, **fields)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return run(Client())


if __name__ == "__main__":
    sys.exit(main())
