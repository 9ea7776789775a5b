"""The progress topic: one record an hour, committed together with the hour's flights, so that it cannot lie about them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

ANSWER_SECONDS_MAX = 30.0
TAIL_OFFSETS = 64


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


def open_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-progress",  # the client demands a name; nothing is ever committed under it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )


def watermarks(consumer: Consumer, topic: str) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_SECONDS_MAX)
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
