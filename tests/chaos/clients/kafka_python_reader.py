"""A consumer with kafka-python: it reads manually assigned partitions from their start."""

from __future__ import annotations

import logging
import sys

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from tests.chaos.clients.assigned_reader import BACKOFF_SECONDS, POLL_MS, AssignedReader, reader_settings
from tests.chaos.clients.common import Client


def connected(client: Client) -> KafkaConsumer | None:
    """Return a consumer, or None if this process has to stop first. The constructor fails while no broker responds."""
    while not client.stopping.is_set():
        try:
            return KafkaConsumer(**reader_settings(client.spec), enable_auto_commit=False)
        except (KafkaError, OSError):
            client.stopping.wait(BACKOFF_SECONDS)
    return None


def run(client: Client) -> int:
    consumer = connected(client)
    if consumer is None:
        return 0
    reader = AssignedReader(client, consumer, (TopicPartition(*partition) for partition in client.partitions))
    while not client.stopping.is_set():
        try:
            batches = consumer.poll(timeout_ms=POLL_MS)
        except OffsetOutOfRangeError as failure:
            reader.reset_positions(failure)
        except (KafkaError, OSError):
            client.stopping.wait(BACKOFF_SECONDS)
        else:
            reader.record(batches)
    consumer.close()
    return 0


def main() -> int:
    logging.disable(logging.CRITICAL)
    return run(Client())


if __name__ == "__main__":
    sys.exit(main())
