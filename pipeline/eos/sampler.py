"""Sample ledger and data all the time, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from odradek.client import (
    ClientError,
    Cluster,
    Consumer,
    NotFound,
    RetryPolicy,
    Settings,
    committed_offsets,
    describe_transaction,
)
from odradek.pipeline.eos.driver import BATCH_HEADER, RUN_HEADER
from odradek.pipeline.eos.visibility import NO_BATCH, UNJUDGED_MAX, Row, Visibility

if TYPE_CHECKING:
    from odradek.client import ConsumerRecord
    from odradek.spark.options import SinkOptions

INTERVAL_SECONDS: Final = 0.15
"""Seconds between two samples. Each one reads the metadata of all partitions, and competes with Spark for two cores."""
SETTINGS: Final = Settings(client_id="eos-sampler", retry=RetryPolicy(deadline_s=20.0))


class Sampler:
    """Samples of one output topic. `sink` is None for a sink without ledger: only its rows are read."""

    def __init__(self, bootstrap: str, topic: str, sink: SinkOptions | None, visibility: Visibility) -> None:
        self._bootstrap = bootstrap
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
                async with Cluster(self._bootstrap, SETTINGS) as cluster:
                    while not self._stopped.is_set():
                        await self._sample(cluster)
                        await asyncio.to_thread(self._stopped.wait, INTERVAL_SECONDS)
            except ClientError:
                self.failed_samples += 1  # a broker is down; the next sample has new connections
                await asyncio.to_thread(self._stopped.wait, INTERVAL_SECONDS)

    async def _sample(self, cluster: Cluster) -> None:
        before = await self._last_batch(cluster, require_stable=False)
        complete = await self._is_complete(cluster)
        rows = [row_of(record) for record in await self._read(cluster)]
        with self._changed:  # `_read` does not return these rows again if a later step fails
            highest = self._visibility.read(rows)
            self._values.update(row.value for row in rows)
            self._changed.notify_all()
        after = await self._last_batch(cluster, require_stable=True) if highest > before else before
        if self._sink is not None:
            self._visibility.sampled(before, after, complete=complete)
        with self._changed:
            self._changed.notify_all()

    async def _last_batch(self, cluster: Cluster, *, require_stable: bool) -> int:
        if self._sink is None:
            return NO_BATCH
        offsets = await committed_offsets(cluster, self._sink.transactional_id, require_stable=require_stable)
        committed = offsets.get(self._sink.ledger)
        return NO_BATCH if committed is None else committed.offset - 1

    async def _is_complete(self, cluster: Cluster) -> bool:
        if self._sink is None:
            return False
        try:
            return not (await describe_transaction(cluster, self._sink.transactional_id)).state.startswith("Prepare")
        except NotFound:
            return True

    async def _read(self, cluster: Cluster) -> list[ConsumerRecord]:
        """Return the visible records after those of the sample before."""
        consumer = Consumer(cluster, self._topic, start=self._starts)
        records = [record async for batch in consumer.batches() for record in batch]
        for record in records:
            self._starts[record.partition] = record.offset + 1
        return records


def row_of(record: ConsumerRecord) -> Row:
    """Return the row of a record of the output topic."""
    headers = dict(record.headers)
    batch, run = (int(headers.get(name) or NO_BATCH) for name in (BATCH_HEADER, RUN_HEADER))
    return Row(record.partition, record.offset, record.value or b"", batch, run)


async def visible_records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Return all records of a topic that a read_committed consumer sees."""
    async with Cluster(bootstrap, SETTINGS) as cluster:
        return [record async for batch in Consumer(cluster, topic).batches() for record in batch]
