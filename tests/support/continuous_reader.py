"""A consumer that reads continuously while a test restarts brokers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException

from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_S = 0.2


class ContinuousReader:
    """A consumer in a group that reads a topic from its begin, committed transactions alone."""

    def __init__(self, clients: Mapping[str, Any], topic: str, group: str) -> None:
        """`clients`: settings of confluent-kafka, with the bootstrap servers."""
        self.values: list[bytes] = []
        self.failure: BaseException | None = None
        self._clients = {**clients, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
        self._topic = topic
        self._expected: int | None = None
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def await_values(self, count: int) -> None:
        """Wait until the consumer has read `count` values in all, or failed."""
        with self._moved:
            read = self._moved.wait_for(lambda: len(self.values) >= count or self.failure is not None, TIMEOUT_S)
        assert read, f"{len(self.values)} of {count} values were read"

    def stop(self, count: int) -> None:
        """Stop when `count` values have been read in all."""
        self.await_values(count)
        self._expected = count
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as failure:
            self.failure = failure
        with self._moved:
            self._moved.notify_all()

    def _read(self) -> None:
        consumer = Consumer(self._clients)
        consumer.subscribe([self._topic])
        try:
            while self._expected is None:
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is not None and not error.retriable():
                    raise KafkaException(error)
                value = message.value()
                if error is None and value is not None:
                    with self._moved:
                        self.values.append(value)
                        self._moved.notify_all()
        finally:
            consumer.close()
