"""A consumer with aiokafka: it reads manually assigned partitions from their start."""

from __future__ import annotations

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from tests.chaos.clients.common import REQUEST_TIMEOUT_MS, Client, python_settings
from tests.chaos.journal import shorten
from tests.sim.history import FAIL, FETCH, OK

CLOSE_SECONDS = 5.0
BACKOFF_SECONDS = 0.3
OFFSET_OUT_OF_RANGE = 1


async def run(client: Client) -> int:
    committed = client.spec.committed
    consumer = AIOKafkaConsumer(
        **python_settings(client.spec.access),
        client_id=client.spec.process,
        group_id=None,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="none",
        request_timeout_ms=REQUEST_TIMEOUT_MS + 1_000,
        fetch_max_wait_ms=300,
        retry_backoff_ms=50,
        metadata_max_age_ms=5_000,
    )
    while True:
        try:
            await consumer.start()
            break
        except (KafkaError, OSError):
            await asyncio.sleep(BACKOFF_SECONDS)
    positions = {TopicPartition(topic, index): 0 for topic, index in client.partitions}
    consumer.assign(list(positions))
    for partition in positions:
        consumer.seek(partition, 0)
    while not client.stopping.is_set():
        try:
            batches = await consumer.getmany(timeout_ms=300)
        except OffsetOutOfRangeError as failure:
            for partition in failure.args[0]:
                number = begin(client, partition, positions[partition])
                client.journal.complete(FETCH, number, FAIL, error=OFFSET_OUT_OF_RANGE, reason=repr(failure))
                consumer.seek(partition, positions[partition])
            continue
        except (KafkaError, OSError):
            await asyncio.sleep(BACKOFF_SECONDS)
            continue
        for partition, messages in batches.items():
            number = begin(client, partition, positions[partition])
            records = [(message.offset, shorten(message.value)) for message in messages]
            positions[partition] = messages[-1].offset + 1
            client.journal.complete(FETCH, number, OK, records=records, next=positions[partition])
    await asyncio.wait_for(consumer.stop(), CLOSE_SECONDS)
    return 0


def begin(client: Client, partition: TopicPartition, position: int) -> int:
    isolation = 1 if client.spec.committed else 0
    fields = {"topic": partition.topic, "partition": partition.partition}
    return client.journal.invoke(FETCH, isolation=isolation, offset=position, **fields)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return asyncio.run(run(Client()))


if __name__ == "__main__":
    sys.exit(main())
