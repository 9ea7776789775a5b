"""Writes rows to partitions with the identity of a transaction, and reads them again before they are reported."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client import ClientError, Consumer, IsolationLevel, Producer, producers_by_partition
from odradek.client.network.fan_out import gathered
from odradek.spark.outcome import WrittenPartition
from odradek.spark.records import CHECKSUM_MODULUS, checksum_of, content_checksum, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client import Cluster, ProducerIdentity, TopicPartition, Written
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
    batches: list[Written] = field(default_factory=list)


class Writer:
    """Writes rows in the transaction of `identity`.

    Brokers take a batch for a duplicate if its sequence numbers are those of an earlier batch. So they acknowledge the
    batches of two writers with one identity, and keep those of one. `verify` finds this.
    """

    def __init__(self, cluster: Cluster, identity: ProducerIdentity) -> None:
        self._cluster = cluster
        self._identity = identity
        self._progress: dict[TopicPartition, _Progress] = {}

    async def write(self, groups: Mapping[TopicPartition, Sequence[SinkRow]], *, alone: bool = False) -> None:
        """Write rows to partitions, to all of them at the same time.

        Raise ClientError if a leader does not acknowledge them, or if another writer wrote to a partition before this
        one. No other writer is expected if this one is `alone`.
        """
        await gathered(*(self._write(key, rows, alone=alone) for key, rows in groups.items()))

    async def _write(self, key: TopicPartition, rows: Sequence[SinkRow], *, alone: bool) -> None:
        progress = self._progress.get(key)
        if progress is None:
            if not alone:
                await self._check_unwritten(key)
            progress = self._progress[key] = _Progress(Producer(self._cluster, identity=self._identity))
        records = [record_of(row, key.partition) for row in rows]
        progress.batches += await progress.producer.send(key.topic, records)
        progress.rows += len(rows)
        progress.checksum = (progress.checksum + sum(map(checksum_of, rows))) % CHECKSUM_MODULUS
        progress.content += sum(content_checksum(each.key, each.value, each.headers) for each in records)

    async def _check_unwritten(self, key: TopicPartition) -> None:
        for row in (await producers_by_partition(self._cluster, [key]))[key]:
            if (row.producer_id, row.producer_epoch) == (self._identity.producer_id, self._identity.epoch):
                raise ClientError(f"another task attempt wrote to {key}")

    async def verify(self) -> None:
        """Read all written records again. Raise ClientError if the log has other records at their offsets."""
        reads = asyncio.Semaphore(CONCURRENT_READS)

        async def verify_one(key: TopicPartition, progress: _Progress) -> None:
            async with reads:
                if await self._content(key, progress.batches) != progress.content:
                    raise ClientError(f"another task attempt wrote to {key} at the same time")

        await gathered(*(verify_one(key, progress) for key, progress in self._progress.items()))

    async def _content(self, key: TopicPartition, written: Sequence[Written]) -> int:
        """Return the sum of the checksums of the records at the offsets that leaders acknowledged."""
        ranges = sorted((each.base_offset, each.base_offset + each.records) for each in written)
        consumer = Consumer(
            self._cluster,
            key.topic,
            partitions=[key.partition],
            start=ranges[0][0],
            isolation=IsolationLevel.READ_UNCOMMITTED,
        )
        content = position = 0
        async with aclosing(consumer.batches()) as batches:
            async for batch in batches:
                for record in batch:
                    while position < len(ranges) and record.offset >= ranges[position][1]:
                        position += 1
                    if position == len(ranges):
                        return content
                    if record.offset >= ranges[position][0]:
                        content += content_checksum(record.key, record.value, record.headers)
        return content

    def reports(self) -> list[WrittenPartition]:
        """Return what was written to each partition."""
        return [
            WrittenPartition(
                key,
                progress.rows,
                progress.batches[0].base_offset,
                progress.batches[-1].base_offset + progress.batches[-1].records - 1,
                progress.checksum,
            )
            for key, progress in self._progress.items()
        ]
