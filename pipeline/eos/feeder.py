"""Fill the input topic with numbered rows in transactions, some of which are aborted."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, Producer

from odradek.pipeline.producer.retry import REQUEST_SECONDS_MAX, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.eos.sampler import Sampler

BACKLOG_ROWS: Final = 500
"""Maximum rows of the input that are not visible in the output yet: about ten micro-batches."""
ROWS_MAX: Final = 40
"""Maximum rows per transaction."""
ABORT_ONE_IN: Final = 10
"""About one of this many transactions is aborted. Its rows must never be visible in the output."""
METADATA_INTERVAL_MS: Final = 2_000
"""Interval at which the producer refreshes its metadata, which has new partitions, in milliseconds."""


class Feeder:
    """A transactional producer in a thread of its own. It waits while the backlog of the output is too large."""

    def __init__(self, access: Access, topic: str, seed: int, sampler: Sampler) -> None:
        self._rng = random.Random(f"eos input {seed}")
        self._topic = topic
        self._sampler = sampler
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._producer = Producer(
            {
                **access.confluent(),
                "transactional.id": f"feeder-{topic}",
                "linger.ms": 0,
                "topic.metadata.refresh.interval.ms": METADATA_INTERVAL_MS,
                "log_level": 0,  # it reports each broker that is down
            }
        )
        self.rows = 0
        self.aborted_rows = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> int:
        """End after the current transaction. Return the number of committed rows. Raise the error that ended it."""
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.rows

    def _run(self) -> None:
        try:
            retry(self._producer.init_transactions)
            while not self._stopped.is_set():
                if self._sampler.wait_for(self.rows - BACKLOG_ROWS, seconds=1.0):
                    self._write()
        except Exception as error:
            self._failure = error

    def _write(self) -> None:
        rows = self._rng.randint(1, ROWS_MAX)
        if self._rng.randrange(ABORT_ONE_IN):
            values = [b"%08d" % number for number in range(self.rows, self.rows + rows)]
            while not self._attempt(values, self._producer.commit_transaction):
                pass
            self.rows += rows
        else:
            self._attempt([b"aborted"] * rows, self._producer.abort_transaction)
            self.aborted_rows += rows

    def _attempt(self, values: list[bytes], end: Callable[[float], None]) -> bool:
        """Write a transaction. Return False if it was aborted because of an abortable error."""
        self._producer.begin_transaction()
        try:
            for value in values:
                self._producer.produce(self._topic, value, value)
            self._producer.flush(REQUEST_SECONDS_MAX)
            retry(end)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retry(self._producer.abort_transaction)
            return False
        return True
