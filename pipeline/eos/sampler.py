"""Sample ledger and data all the time, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from odradek.client import (
    ClientError,
    Consumer,
    NotFound,
    RetryPolicy,
    Settings,
    describe_transaction,
)
from odradek.client.network.fan_out import gathered
from odradek.pipeline.eos.driver import BATCH_HEADER, RUN_HEADER
from odradek.pipeline.eos.visibility import NO_BATCH, UNJUDGED_MAX, Row, Visibility
from odradek.spark.transaction import read_ledger

if TYPE_CHECKING:
    from odradek.client import Cluster, ConsumerRecord
    from odradek.pipeline.cluster.access import Access
    from odradek.spark.ledger import LedgerEntry
    from odradek.spark.options import SinkOptions

INTERVAL_SECONDS: Final = 0.15
"""Seconds between two samples. Each one reads the metadata of all partitions, and competes with Spark for two cores."""
SETTINGS: Final = Settings(client_id="eos-sampler", retry=RetryPolicy(deadline_s=20.0))


class Sampler:
    """Samples of one output topic. `sink` is None for a sink without ledger: only its rows are read."""

    def __init__(self, access: Access, topic: str, sink: SinkOptions | None, visibility: Visibility) -> None:
        self._access = access
        self._topic = topic
        self._sink = sink
        self._visibility = visibility
        self._starts: dict[int, int] = {}
        self._values: set[bytes] = set()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.failed_samples = 0

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """End the samples."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    @property
    def values(self) -> int:
        """Number of different values that are visible."""
        return len(self._values)

    def wait_for(self, values: int, seconds: float | None = None) -> bool:
        """Wait until at least `values` different values are visible, or until `stop`. Return False on a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._values) >= values or self._stopped.is_set(), seconds)

    def wait_until_judged(self, seconds: float) -> bool:
        """Wait until at most `UNJUDGED_MAX` batches are not judged, or until `stop`. Return False on a timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._visibility.unjudged <= UNJUDGED_MAX or self._stopped.is_set(), seconds
            )

    def _run(self) -> None:
        asyncio.run(self._sample_all())

    async def _sample_all(self) -> None:
        while not self._stopped.is_set():
            try:
                async with self._access.cluster(SETTINGS) as cluster:
                    while not self._stopped.is_set():
                        await self._sample(cluster)
                        await asyncio.to_thread(self._stopped.wait, INTERVAL_SECONDS)
            except ClientError:
                self.failed_samples += 1  # a broker is down; the next sample has new connections
                await asyncio.to_thread(self._stopped.wait, INTERVAL_SECONDS)

    async def _sample(self, cluster: Cluster) -> None:
        entry = await self._ledger(cluster, require_stable=False)
        before = NO_BATCH if entry is None else entry.batch_id
        complete = await self._is_complete(cluster, 0 if entry is None else entry.tasks)
        rows = [row_of(record) for record in await self._read(cluster)]
        with self._changed:  # `_read` does not return these rows again if a later step fails
            highest = self._visibility.read(rows)
            self._values.update(row.value for row in rows)
            self._changed.notify_all()
        after = before
        if highest > before:
            entry = await self._ledger(cluster, require_stable=True)
            after = NO_BATCH if entry is None else entry.batch_id
        if self._sink is not None:
            self._visibility.sampled(before, after, complete=complete)
        with self._changed:
            self._changed.notify_all()

    async def _ledger(self, cluster: Cluster, *, require_stable: bool) -> LedgerEntry | None:
        if self._sink is None:
            return None
        return await read_ledger(cluster, self._sink, require_stable=require_stable)

    async def _is_complete(self, cluster: Cluster, tasks: int) -> bool:
        """Return True if no transaction of the sink, or of its first `tasks` tasks, is in a state Prepare."""
        if self._sink is None:
            return False
        ids = [self._sink.transactional_id, *(self._sink.task_id(task) for task in range(tasks))]
        return not any(await gathered(*(_is_prepared(cluster, transactional_id) for transactional_id in ids)))

    async def _read(self, cluster: Cluster) -> list[ConsumerRecord]:
        """Return the visible records after those of the sample before."""
        consumer = Consumer(cluster, self._topic, start=self._starts)
        records = [record async for batch in consumer.batches() for record in batch]
        for record in records:
            self._starts[record.partition] = record.offset + 1
        return records


async def _is_prepared(cluster: Cluster, transactional_id: str) -> bool:
    try:
        return (await describe_transaction(cluster, transactional_id)).state.startswith("Prepare")
    except NotFound:
        return False


def row_of(record: ConsumerRecord) -> Row:
    """Return the row of a record of the output topic."""
    headers = dict(record.headers)
    batch, run = (int(headers.get(name) or NO_BATCH) for name in (BATCH_HEADER, RUN_HEADER))
    return Row(record.partition, record.offset, record.value or b"", batch, run)


async def visible_records(access: Access, topic: str) -> list[ConsumerRecord]:
    """Return all records of a topic that a read_committed consumer sees."""
    async with access.cluster(SETTINGS) as cluster:
        return [record async for batch in Consumer(cluster, topic).batches() for record in batch]
