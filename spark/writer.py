"""Writes rows to partitions with the identity of a transaction, and reads them again before they are reported."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client import (
    ClientError,
    IsolationLevel,
    Producer,
    checked_batches,
    fetch_range,
    producers_by_partition,
)
from odradek.client.consumer.decode import DECOMPRESSED_BYTES_MAX
from odradek.client.network.fan_out import gathered
from odradek.protocol.batch import iter_records
from odradek.protocol.errors import Malformed
from odradek.spark.outcome import WrittenPartition
from odradek.spark.records import CHECKSUM_MODULUS, checksum_of, content_checksum, record_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from odradek.client import Cluster, ProducerIdentity, TopicPartition
    from odradek.spark.records import SinkRow

CONCURRENT_READS: Final = 4
"""Maximum partitions that a writer reads at the same time. Each read holds one Fetch response (up to 8 MiB)."""


@dataclass(slots=True)
class _Progress:
    """Rows that a writer has sent to one partition. `content` is the sum of the checksums of their records.

    Each partition has a producer of its own, so that all are written at the same time.
    """

    producer: Producer
    rows: int = 0
    checksum: int = 0
    content: int = 0
    first_offset: int = 0
    last_offset: int = 0


class Writer:
    """Writes rows in the transaction of `identity`.

    Brokers take a batch for a duplicate if its sequence numbers are those of an earlier batch. So they acknowledge the
    batches of two writers with one identity, and keep those of one. `verify` finds this.
    """

    def __init__(self, cluster: Cluster, identity: ProducerIdentity) -> None:
        self._cluster = cluster
        self._identity = identity
        self._pair = identity.producer_id, identity.epoch
        self._progress: dict[TopicPartition, _Progress] = {}

    async def write(self, groups: Mapping[TopicPartition, Sequence[SinkRow]], *, alone: bool = False) -> None:
        """Write rows to partitions, to all of them at the same time.

        Raise ClientError if a leader does not acknowledge them, or if another writer wrote to a partition before this
        one. No other writer is expected if this one is `alone`.
        """
        new = groups.keys() - self._progress.keys()
        if not alone:
            await self._check_unwritten(new)
        for key in new:
            self._progress[key] = _Progress(Producer(self._cluster, identity=self._identity))
        await gathered(*(self._write(key, rows) for key, rows in groups.items()))

    async def _check_unwritten(self, partitions: Collection[TopicPartition]) -> None:
        for key, producers in (await producers_by_partition(self._cluster, partitions)).items():
            if self._pair in {(row.producer_id, row.producer_epoch) for row in producers}:
                raise ClientError(f"another task attempt wrote to {key}")

    async def _write(self, key: TopicPartition, rows: Sequence[SinkRow]) -> None:
        progress = self._progress[key]
        records = [record_of(row, key.partition) for row in rows]
        written = await progress.producer.send(key.topic, records)
        if progress.rows == 0:
            progress.first_offset = written[0].base_offset
        progress.last_offset = written[-1].base_offset + written[-1].records - 1
        progress.rows += len(rows)
        progress.checksum = (progress.checksum + sum(map(checksum_of, rows))) % CHECKSUM_MODULUS
        progress.content += sum(content_checksum(each.key, each.value, each.headers) for each in records)

    async def verify(self) -> None:
        """Read all written records again. Raise ClientError if the log has other records of the identity."""
        reads = asyncio.Semaphore(CONCURRENT_READS)

        async def verify_one(key: TopicPartition, progress: _Progress) -> None:
            async with reads:
                if await self._content(key, progress) != progress.content:
                    raise ClientError(f"another task attempt wrote to {key} at the same time")

        await gathered(*(verify_one(key, progress) for key, progress in self._progress.items()))

    async def _content(self, key: TopicPartition, progress: _Progress) -> int:
        """Return the sum of the checksums of the records that the log has from this identity."""
        content = 0
        fetched = fetch_range(
            self._cluster, key, progress.first_offset, progress.last_offset + 1, IsolationLevel.READ_UNCOMMITTED
        )
        async with aclosing(fetched) as responses:
            async for response in responses:
                if response.following == response.first:
                    raise ClientError(f"{key} ends before offset {progress.last_offset}, which its leader acknowledged")
                try:
                    for header, batch, _ in checked_batches(response.data):
                        if (header.producer_id, header.producer_epoch) == self._pair and not header.is_control:
                            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                                content += content_checksum(record.key, record.value, record.headers)
                except Malformed as error:
                    raise ClientError(f"{key}, after offset {response.first}: {error}") from error
        return content

    def reports(self) -> list[WrittenPartition]:
        """Return what was written to each partition."""
        return [
            WrittenPartition(
                key,
                progress.rows,
                progress.first_offset,
                progress.last_offset,
                progress.checksum,
            )
            for key, progress in self._progress.items()
        ]
