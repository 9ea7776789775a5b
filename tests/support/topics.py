"""Topics with known contents, written by confluent-kafka."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.flights.progress_topic import await_stable

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS_MAX = 30.0
serial = itertools.count()


class Topics:
    """Makes topics for one test, and writes to them."""

    def __init__(self, bootstrap: str, test: str) -> None:
        self.bootstrap = bootstrap
        self.access = Access(bootstrap)
        self._prefix = re.sub(r"[^a-zA-Z0-9._-]", "-", test)

    def new(self, partitions: int = 1, *, name: str = "t") -> str:
        """Create a topic without retention: records may have timestamps of 1970, and a test may take 30 seconds."""
        topic = f"{self._prefix}-{name}-{next(serial)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new_topic = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        admin.create_topics([new_topic])[topic].result(SECONDS_MAX)
        return topic

    def unique(self, name: str) -> str:
        """A name only."""
        return f"{self._prefix}-{name}-{next(serial)}"

    def producer(self, transactional_id: str | None = None) -> Producer:
        """Idempotent; with an id transactional and initialized."""
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
        }
        if transactional_id is not None:
            producer = Producer(config | {"transactional.id": self.unique(transactional_id)})
            producer.init_transactions(SECONDS_MAX)
            return producer
        return Producer(config)

    def write(
        self,
        topic: str,
        values: Iterable[str],
        *,
        partition: int = 0,
        producer: Producer | None = None,
        timestamp: int = 0,
        one_batch: bool = True,
    ) -> None:
        """Write and wait. ``timestamp`` in ms, 0 is now; without ``one_batch`` every value is a batch of its own."""
        own = producer or self.producer()
        for value in values:
            own.produce(topic, value.encode(), partition=partition, timestamp=timestamp)
            if not one_batch:
                assert own.flush(SECONDS_MAX) == 0
        assert own.flush(SECONDS_MAX) == 0

    def settle(self, topic: str, partitions: int = 1) -> None:
        """Wait for the markers of ended transactions: they follow the response to EndTxn."""
        await_stable(self.access, {topic: partitions})

    def layout(self, topic: str, plan: str, *, partition: int = 0) -> list[str]:
        """Write transactions by a plan such as ``C2 A5 C2`` (commit two rows, abort five, commit two; N3: three rows
        outside any transaction).

        Returns what stands at each offset: a committed row's value, or "" where a reader of committed data sees
        nothing.
        """
        producer = self.producer("layout")
        plain = self.producer()
        offsets: list[str] = []
        for number, step in enumerate(plan.split()):
            kind, values = step[0], [f"{partition}.{number}.{row}" for row in range(int(step[1:]))]
            if kind == "N":
                self.write(topic, values, partition=partition, producer=plain)
                offsets += values
                continue
            producer.begin_transaction()
            self.write(topic, values, partition=partition, producer=producer, one_batch=False)
            if kind == "C":
                producer.commit_transaction(SECONDS_MAX)
            else:
                producer.abort_transaction(SECONDS_MAX)
            self.settle(topic, partition + 1)  # else what comes next could stand before the marker
            offsets += [*(values if kind == "C" else [""] * len(values)), ""]
        return offsets
