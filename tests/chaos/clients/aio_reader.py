"""A consumer with aiokafka: it reads manually assigned partitions from their start."""

from __future__ import annotations

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from tests.chaos.clients.assigned_reader import BACKOFF_SECONDS, POLL_MS, AssignedReader, reader_settings
from tests.chaos.clients.common import Client

CLOSE_SECONDS = 5.0


async def run(client: Client) -> int:
    consumer = AIOKafkaConsumer(**reader_settings(client.spec))
    while True:
        try:
            await consumer.start()
            break
        except (KafkaError, OSError):
            await asyncio.sleep(BACKOFF_SECONDS)
    reader = AssignedReader(client, consumer, (TopicPartition(*partition) for partition in client.partitions))
    while not client.stopping.is_set():
        try:
            batches = await consumer.getmany(timeout_ms=POLL_MS)
        except OffsetOutOfRangeError as failure:
            reader.reset_positions(failure)
        except (KafkaError, OSError):
            await asyncio.sleep(BACKOFF_SECONDS)
        else:
            reader.record(batches)
    await asyncio.wait_for(consumer.stop(), CLOSE_SECONDS)
    return 0


def main() -> int:
    logging.disable(logging.CRITICAL)
    return asyncio.run(run(Client()))


if __name__ == "__main__":
    sys.exit(main())
