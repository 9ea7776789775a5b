"""Standby cache: the last committed record of each key of a coordinator's log, records by a follower of the partition.

A new coordinator has to read its log before it serves requests. A follower therefore caches the records that compaction
would retain. After an election it reads only the records since the last update of the cache. The cache does not decode
keys and values.

Records of a transaction take effect with its commit marker, but at their own offsets. Two cases follow, as in Kafka's
OffsetMetadataManager:

- A record outside the transaction with a higher offset is newer than the transaction's record of the same key.
- A non-transactional tombstone also removes the pending records of the same key.

Of the records of a key in one transaction, the cache keeps the last one, as the coordinator does.

A reader of a compacted log has to reach its end within delete.retention.ms:

1. The cache reads a record, and then lags.
2. A tombstone of the same key is appended, and compaction removes it after delete.retention.ms.
3. The cache continues after it, and keeps a record that no longer exists.

So a cache that did not reach the end of the log for half of delete.retention.ms is discarded. The other half remains
for the load after an election, and for a compaction that started earlier.
"""

from asyncio import sleep
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from odradek.broker.coordinators.log_replay import RECORDS_PER_SLICE, replay
from odradek.broker.partition.partition import Partition
from odradek.protocol.errors import Malformed, Refusal
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.runtime.clock import Clock
from odradek.runtime.expiry_time import CATCH_UP_FACTOR
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord

DELETE_RETENTION_MS_MIN: Final = 10_000
"""Minimum delete.retention.ms of a topic with a standby cache, in milliseconds. With a lower value, the cache would
be discarded repeatedly."""

CachedRecord = tuple[int, bytes, int]
"""Offset, value, leader epoch."""


class StandbyCache:
    """Last record of each key of one log up to `cached_end`, and the records of open transactions.

    The cache reads only below the high watermark, because records above it may be truncated.
    """

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self.partition = partition
        self._clock = clock
        self._latest: dict[bytes, CachedRecord] = {}
        self._open: dict[int, _OpenTransaction] = {}
        """Open transactions by producer id."""
        self._pending: dict[bytes, dict[int, None]] = {}
        """Producer ids of the open transactions that have a record of a key."""
        self._next = 0
        self._epoch = NO_LEADER_EPOCH
        self._unreadable: int | None = None
        """Offset from which the log cannot be read. Another attempt would decompress the same batch again."""
        self._complete_ms = 0
        """Monotonic time up to which the cache is complete.

        Delete horizons use the expiry time, which advances at most twice as fast (CATCH_UP_FACTOR).
        """

    def __len__(self) -> int:
        """Return the number of cached records."""
        return len(self._latest) + sum(len(transaction.records) for transaction in self._open.values())

    def cached_end(self) -> int:
        """Return the offset from which the log has to be read.

        Discard a cache that is too old or does not match the log.
        """
        log = self.partition.log
        # A log is truncated below the high watermark only if more replicas failed than min.insync.replicas tolerates.
        fits = self._next <= log.log_end_offset and log.epochs.epoch_for(self._next - 1) == self._epoch
        in_time = self._clock.monotonic_ms() - self._complete_ms <= log.config.delete_retention_ms // CATCH_UP_FACTOR
        if self._next and not (fits and in_time):
            self._latest.clear()
            self._open.clear()
            self._pending.clear()
            self._next, self._epoch = 0, NO_LEADER_EPOCH
        return self._next

    async def catch_up(self, *, read_bytes: int) -> None:
        """Read the records that were committed since the last call."""
        log = self.partition.log
        if log.config.delete_retention_ms < DELETE_RETENTION_MS_MIN:
            return
        started_ms = self._clock.monotonic_ms()
        start, end = max(self.cached_end(), log.log_start_offset), log.high_watermark
        if not self._next:
            self._complete_ms = started_ms
        if start == self._unreadable:
            return
        if start < end:
            try:
                await replay(self.partition, start, end, self._add, read_bytes=read_bytes)
            except Malformed:
                self._unreadable = max(self.cached_end(), log.log_start_offset)
                return  # The load after an election fails for the same reason, and reports it.
            except Refusal:
                return  # The log was truncated, or the disk failed.
        self.cached_end()  # Discard the cache if this read took too long.
        self._complete_ms = started_ms

    async def replay(self, visit: ReplayVisitor) -> int:
        """Visit the cached records. Return the offset from which the log has to be read."""
        cached_end, start = self.cached_end(), self.partition.log.log_start_offset
        records = [(offset, ShardRecord(key, value), epoch) for key, (offset, value, epoch) in self._latest.items()]
        for producer_id, transaction in self._open.items():
            records += [
                (offset, ShardRecord(key, value, producer_id, transaction.producer_epoch), epoch)
                for key, (offset, value, epoch) in transaction.records.items()
            ]
        records.sort(key=itemgetter(0))
        for number, (offset, record, epoch) in enumerate(records, 1):
            if offset >= start:
                visit(offset, record, epoch)
            if number % RECORDS_PER_SLICE == 0:
                await sleep(0)
        return max(cached_end, start)

    def _add(self, offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        if isinstance(entry, Marker):
            self._end_transaction(entry)
        elif entry.key is None:
            raise Malformed(f"{self.partition.log.directory}: the record at offset {offset} has no key")
        elif entry.producer_id >= 0:
            transaction = self._open.setdefault(entry.producer_id, _OpenTransaction())
            transaction.producer_epoch = entry.producer_epoch
            transaction.records[entry.key] = (offset, entry.value, leader_epoch)
            self._pending.setdefault(entry.key, {})[entry.producer_id] = None
        else:
            self._latest.pop(entry.key, None)
            if entry.value is not None:
                self._latest[entry.key] = (offset, entry.value, leader_epoch)
            else:
                for producer_id in self._pending.pop(entry.key, ()):
                    del self._open[producer_id].records[entry.key]
        self._next, self._epoch = offset + 1, leader_epoch

    def _end_transaction(self, marker: Marker) -> None:
        transaction = self._open.pop(marker.producer_id, None)
        if transaction is None:
            return
        for key, (offset, value, leader_epoch) in transaction.records.items():
            producer_ids = self._pending[key]
            del producer_ids[marker.producer_id]
            if not producer_ids:
                del self._pending[key]
            if not marker.commit:
                continue
            before = self._latest.get(key)
            if before is not None and before[0] > offset:
                continue
            self._latest.pop(key, None)
            if value is not None:
                self._latest[key] = (offset, value, leader_epoch)


@dataclass(slots=True)
class _OpenTransaction:
    """One open transaction."""

    producer_epoch: int = -1
    records: dict[bytes, tuple[int, bytes | None, int]] = field(default_factory=dict)
    """Offset, value and leader epoch of the last record of each key."""
