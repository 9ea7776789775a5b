"""A consumer with confluent-kafka: it reads manually assigned partitions from their start.

With kind `final`, it exits when it has reached the end of all partitions.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.chaos.admin_requests import quiet
from tests.chaos.clients.common import STUCK, Client
from tests.chaos.journal import now, shorten
from tests.sim.history import FAIL, FETCH, OK

FINAL = "final"
FINAL_SECONDS = 90.0
MESSAGES_MAX = 500
OFFSET_OUT_OF_RANGE = 1
INVALID_POSITION = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)


class Reader:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.final = client.spec.kind == FINAL
        self.isolation = 1 if client.spec.committed else 0
        self.positions = dict.fromkeys(client.partitions, 0)
        self.ended: dict[tuple[str, int], None] = {}
        self.consumer = Consumer(
            {
                **client.spec.access.confluent(),
                "client.id": client.spec.process,
                "group.id": client.spec.process,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if client.spec.committed else "read_uncommitted",
                "enable.partition.eof": self.final,
                "fetch.wait.max.ms": 300,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5_000,
                "log_level": 0,
                "error_cb": quiet,
            }
        )
        self.consumer.assign([TopicPartition(topic, index, 0) for topic, index in client.partitions])

    def run(self) -> int:
        deadline = time.monotonic() + FINAL_SECONDS
        while not self.client.stopping.is_set():
            self.record(self.consumer.consume(MESSAGES_MAX, 0.3))
            if self.final and len(self.ended) == len(self.positions):
                break
            if self.final and time.monotonic() > deadline:
                return STUCK
        self.consumer.close()
        return 0

    def record(self, messages: list[Any]) -> None:
        """Write one FETCH per partition to the journal: its start offset, its records and its next offset."""
        batches: dict[tuple[str, int], list[tuple[int, str]]] = {}
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            partition = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                batches.setdefault(partition, []).append((message.offset(), shorten(message.value())))
                ends[partition] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                batches.setdefault(partition, [])
                ends[partition] = message.offset()
                self.ended[partition] = None
            elif error.code() in INVALID_POSITION:
                self.reset_position(partition, error)
        for partition, records in batches.items():
            number = self.begin(partition)
            end = max(self.positions[partition], ends[partition])
            self.client.journal.complete(FETCH, number, OK, records=records, next=end)
            self.positions[partition] = end

    def begin(self, partition: tuple[str, int]) -> int:
        return self.client.journal.invoke(
            FETCH,
            topic=partition[0],
            partition=partition[1],
            isolation=self.isolation,
            offset=self.positions[partition],
            final=self.final,
        )

    def reset_position(self, partition: tuple[str, int], error: Any) -> None:
        number = self.begin(partition)
        self.client.journal.complete(FETCH, number, FAIL, error=OFFSET_OUT_OF_RANGE, reason=error.str(), at=now())
        self.consumer.seek(TopicPartition(partition[0], partition[1], self.positions[partition]))


def main() -> int:
    client = Client()
    try:
        return Reader(client).run()
    except KafkaException as failure:
        print(f"{client.spec.process}: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
