"""What a follower keeps of a coordinator's log: what a cleaner would have left of it.

A coordinator that is elected would have to read its log from the start; nobody is coordinated until it has. So every replica
reads on while it follows, and at election only what came last is left to read. Nothing is decoded here.

Records of a transaction count from its commit marker on, but at their own offset: what was written outside of it meanwhile is
newer. A tombstone outside of it takes what it would have brought for the same key, too (as OffsetMetadataManager in Kafka).

Whoever reads a compacted log has delete.retention.ms to come to its end, or misses tombstones and markers that compaction has
taken meanwhile, of what it has read before. Half of that is for reading along, and what has not come to the end by then is
read anew: the other half is for the load, and for the cleaning, which counts from its own beginning.
"""

from asyncio import sleep
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from odradek.broker.coordinators.log_replay import RECORDS_AT_A_TIME, replay
from odradek.broker.partition.partition import Partition
from odradek.protocol.errors import Malformed, Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord

NO_EPOCH: Final = -1
DELETE_RETENTION_MS_MIN: Final = 10_000
"""Where delete.retention.ms is less, nothing is read along: it would be read anew all the time."""

Kept = tuple[int, bytes, int]
"""offset, value, leader epoch"""


class LatestRecords:
    """The last record of each key of one log below the high watermark, up to `kept_to`, and those of open transactions.

    What is above the high watermark may be cut off again.
    """

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self.partition = partition
        self._clock = clock
        self._latest: dict[bytes, Kept] = {}
        self._open: dict[int, _Open] = {}
        """By producer id."""
        self._next = 0
        self._epoch = NO_EPOCH
        self._whole_ms = 0
        """Nothing is missing that was in the log then: wall clock, as delete horizons are."""

    def __len__(self) -> int:
        """Records that are kept."""
        return len(self._latest) + sum(len(transaction.records) for transaction in self._open.values())

    def kept_to(self) -> int:
        """The offset from which on the log has to be read."""
        log = self.partition.log
        # Below the high watermark a log is never cut, unless data was lost with more replicas than the settings allow for.
        fits = self._next <= log.log_end_offset and log.epochs.epoch_for(self._next - 1) == self._epoch
        in_time = self._clock.wall_ms() - self._whole_ms <= log.config.delete_retention_ms // 2
        if self._next and not (fits and in_time):
            self._latest.clear()
            self._open.clear()
            self._next, self._epoch = 0, NO_EPOCH
        return self._next

    async def read_on(self, *, read_bytes: int) -> None:
        """Take in what has been committed since."""
        log = self.partition.log
        if log.config.delete_retention_ms < DELETE_RETENTION_MS_MIN:
            return
        begun_ms = self._clock.wall_ms()
        start, end = max(self.kept_to(), log.log_start_offset), log.high_watermark
        if not self._next:
            self._whole_ms = begun_ms
        if start < end:
            try:
                await replay(self.partition, start, end, self._take, read_bytes=read_bytes)
            except (Malformed, Refusal):
                return  # whoever is elected meets it too, and says so
        self.kept_to()  # it may have taken too long
        self._whole_ms = begun_ms

    async def replay(self, visit: ReplayVisitor) -> int:
        """Visit what is kept; the offset from which on the log has to be read."""
        kept_to, start = self.kept_to(), self.partition.log.log_start_offset
        kept = [(offset, ShardRecord(key, value), epoch) for key, (offset, value, epoch) in self._latest.items()]
        for producer_id, transaction in self._open.items():
            kept += [
                (offset, ShardRecord(key, value, producer_id, transaction.producer_epoch), epoch)
                for offset, key, value, epoch in transaction.records
            ]
        kept.sort(key=itemgetter(0))
        for number, (offset, record, epoch) in enumerate(kept, 1):
            if offset >= start:
                visit(offset, record, epoch)
            if number % RECORDS_AT_A_TIME == 0:
                await sleep(0)
        return max(kept_to, start)

    def _take(self, offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        if isinstance(entry, Marker):
            self._end(entry)
        elif entry.key is None:
            raise Malformed(f"{self.partition.log.directory}: a record without a key at offset {offset}")
        elif entry.producer_id >= 0:
            transaction = self._open.setdefault(entry.producer_id, _Open())
            transaction.producer_epoch = entry.producer_epoch
            transaction.records.append((offset, entry.key, entry.value, leader_epoch))
        else:
            self._latest.pop(entry.key, None)
            if entry.value is not None:
                self._latest[entry.key] = (offset, entry.value, leader_epoch)
            else:
                for transaction in self._open.values():
                    transaction.records = [record for record in transaction.records if record[1] != entry.key]
        self._next, self._epoch = offset + 1, leader_epoch

    def _end(self, marker: Marker) -> None:
        transaction = self._open.pop(marker.producer_id, None)
        if transaction is None or not marker.commit:
            return
        for offset, key, value, leader_epoch in transaction.records:
            before = self._latest.get(key)
            if before is not None and before[0] > offset:
                continue
            self._latest.pop(key, None)
            if value is not None:
                self._latest[key] = (offset, value, leader_epoch)


@dataclass(slots=True)
class _Open:
    """One transaction that has not ended."""

    producer_epoch: int = -1
    records: list[tuple[int, bytes, bytes | None, int]] = field(default_factory=list)
    """(offset, key, value, leader epoch), in order of the offsets"""
