"""The progress topic: one record an hour, committed together with the hour's flights, so that it cannot lie about them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_SECONDS_MAX = 30.0
TAIL_OFFSETS = 64
STABLE_INTERVAL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Progress:
    """Hour ``hour`` was written by the attempt of this name, with so many rows."""

    hour: int
    attempt: str
    rows: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_progress(bootstrap: str, topic: str) -> list[Progress]:
    """All committed records, in order. Raises KafkaException, and TimeoutError when the broker falls silent."""
    consumer = open_consumer(bootstrap)
    try:
        low, _ = watermarks(consumer, topic)
        return read_to_end(consumer, topic, low)
    finally:
        consumer.close()


def last_progress(bootstrap: str, topic: str) -> Progress | None:
    """The last committed record, None when there is none.

    The end of the topic may be any number of aborted records and markers, hence the search in growing steps.
    """
    consumer = open_consumer(bootstrap)
    try:
        low, high = watermarks(consumer, topic)
        distance = TAIL_OFFSETS
        while True:
            start = max(low, high - distance)
            if found := read_to_end(consumer, topic, start):
                return found[-1]
            if start == low:
                return None
            distance *= 4
    finally:
        consumer.close()


def await_stable(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Wait until no transaction is open in the topics (name -> partitions). Raises TimeoutError.

    Nothing tells a client when the markers of a transaction are written; only comparing the end of the log with the last
    stable offset does.
    """
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    readers = [open_consumer(bootstrap, isolation) for isolation in ("read_committed", "read_uncommitted")]
    try:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                while len({watermarks(reader, topic, partition)[1] for reader in readers}) > 1:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"a transaction stays open in {topic}-{partition}")
                    time.sleep(STABLE_INTERVAL_SECONDS)
    finally:
        for reader in readers:
            reader.close()


def open_consumer(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-progress",  # the client demands a name; nothing is ever committed under it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )


def watermarks(consumer: Consumer, topic: str, partition: int = 0) -> tuple[int, int]:
    """First offset and end; a reader of committed data is told the last stable offset as the end."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS_MAX)
    return low, high


def read_to_end(consumer: Consumer, topic: str, start: int) -> list[Progress]:
    found: list[Progress] = []
    consumer.assign([TopicPartition(topic, 0, start)])
    while True:
        message = consumer.poll(ANSWER_SECONDS_MAX)
        if message is None:
            raise TimeoutError(f"the broker said nothing about {topic} for {ANSWER_SECONDS_MAX:.0f} s")
        error = message.error()
        if error is None:
            found.append(Progress(**json.loads(message.value() or b"{}")))
        elif error.code() == KafkaError._PARTITION_EOF:
            return found
        else:
            raise KafkaException(error)
