"""Read and write the progress topic, which has one record per committed hour.

The producer writes the record in the same transaction as the hour's flights. The record is therefore committed exactly
if the flights are.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.pipeline.cluster.access import Access

RESPONSE_SECONDS_MAX = 30.0
"""Maximum seconds without a response of the broker, and for the markers of completed transactions."""
TAIL_OFFSETS = 64
"""Offsets before the end of the topic at which the search for the last record begins."""
STABLE_INTERVAL_SECONDS = 0.01
"""Seconds between two comparisons of the high watermark and the last stable offset."""
GROUP = "flights-progress"
"""Group of the consumers, which librdkafka requires. No offset is committed for it."""
LEADER_MOVED = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""Errors of a partition whose leader has moved or is being elected."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Value of a progress record: `attempt` has written `rows` flights of hour `hour`."""

    hour: int
    attempt: str
    rows: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_progress(access: Access, topic: str) -> list[Progress]:
    """Return all committed records in order.

    Raise KafkaException on an error of the broker, and TimeoutError if it sends no response.
    """
    consumer = open_consumer(access)
    try:
        low, _ = watermarks(consumer, topic)
        return read_to_end(consumer, topic, low)
    finally:
        consumer.close()


def last_progress(access: Access, topic: str) -> Progress | None:
    """Return the last committed record, or None if there is none.

    The end of the topic may consist of any number of aborted records and markers. The search therefore starts near the
    end, and goes back in growing steps.
    """
    consumer = open_consumer(access)
    try:
        low, high = watermarks(consumer, topic)
        distance = TAIL_OFFSETS
        while True:
            start = max(low, high - distance)
            if records := read_to_end(consumer, topic, start):
                return records[-1]
            if start == low:
                return None
            distance *= 4
    finally:
        consumer.close()


def await_stable(access: Access, topics: Mapping[str, int]) -> None:
    """Wait until no transaction is open in the topics. `topics` maps names to partition counts.

    An EndTxn response does not mean that the markers are written. The transaction is complete in a partition when the
    last stable offset has reached the high watermark. Raise TimeoutError after `RESPONSE_SECONDS_MAX`.
    """
    deadline = time.monotonic() + RESPONSE_SECONDS_MAX
    readers = [open_consumer(access, isolation) for isolation in ("read_committed", "read_uncommitted")]
    try:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                while len({watermarks(reader, topic, partition)[1] for reader in readers}) > 1:
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"{topic}-{partition} has an open transaction after {RESPONSE_SECONDS_MAX:.0f} s"
                        )
                    time.sleep(STABLE_INTERVAL_SECONDS)
    finally:
        for reader in readers:
            reader.close()


def open_consumer(access: Access, isolation: str = "read_committed") -> Consumer:
    """Return a consumer for explicit assignment. It reports the end of a partition, and commits no offsets."""
    return Consumer(
        {
            **access.confluent(),
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,  # librdkafka logs each broker that is down
        }
    )


def watermarks(consumer: Consumer, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the log start offset and the end offset of a partition.

    The end offset is the last stable offset for a read_committed consumer, otherwise the high watermark. Leaders move
    when a broker returns, and librdkafka does not repeat a request to the former leader. Raise KafkaException on
    another error, or if no leader responds within `RESPONSE_SECONDS_MAX`.
    """
    deadline = time.monotonic() + RESPONSE_SECONDS_MAX
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=RESPONSE_SECONDS_MAX)
        except KafkaException as exception:
            if exception.args[0].code() not in LEADER_MOVED or time.monotonic() > deadline:
                raise
            consumer.list_topics(topic, timeout=RESPONSE_SECONDS_MAX)  # learns the new leader
            time.sleep(STABLE_INTERVAL_SECONDS)
        else:
            return low, high


def read_to_end(consumer: Consumer, topic: str, start: int) -> list[Progress]:
    """Return the records of partition 0 from offset `start` to the end of the partition.

    Raise KafkaException on an error of the broker, and TimeoutError if it sends nothing for `RESPONSE_SECONDS_MAX`.
    """
    records: list[Progress] = []
    consumer.assign([TopicPartition(topic, 0, start)])
    while True:
        message = consumer.poll(RESPONSE_SECONDS_MAX)
        if message is None:
            raise TimeoutError(f"no record or end of {topic}-0 was received for {RESPONSE_SECONDS_MAX:.0f} s")
        error = message.error()
        if error is None:
            records.append(Progress(**json.loads(message.value() or b"{}")))
        elif error.code() == KafkaError._PARTITION_EOF:
            return records
        else:
            raise KafkaException(error)
