"""What every part of a log shares: its segments, watermarks, epochs and producers, and their upkeep.

`odradek.storage.log.log.PartitionLog` adds append and read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from odradek.storage.config import OpenOptions
from odradek.storage.files import checkpoint, names
from odradek.storage.log import retention, truncation
from odradek.storage.log.flushing import Flusher
from odradek.storage.log.reads import Hold
from odradek.storage.recovery import cuts
from odradek.storage.recovery.recovery import Loader
from odradek.storage.segment.segment import Segment

if TYPE_CHECKING:
    import uuid

    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk


@dataclass(slots=True, frozen=True)
class ProducerRow:
    """A producer as DescribeProducers shows it; -1 stands for "none"."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


@dataclass(slots=True)
class DeletedFiles:
    """Files that have been renamed away; `holds`: who may still be at them."""

    paths: list[str]
    segments: list[Segment]
    holds: WeakSet[Hold]
    seen_ms: int | None = None


class LogBase:
    """Attributes are read freely; only the methods here and in the log change them."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        loader: Loader,
        *,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = loader.segments
        self.state = loader.state
        self.epochs = loader.epochs
        self.snapshots = loader.snapshots
        self.log_start_offset = loader.log_start_offset
        self.log_end_offset = loader.log_end_offset
        self.high_watermark = self.last_stable_offset = loader.log_start_offset
        self.first_unstable_offset: int | None = None
        self.flusher = Flusher(disk, directory, loader.flushed_offset, self.segments.base_below(loader.flushed_offset))
        self.failed = False
        self.closed = False
        self.deleted: list[DeletedFiles] = []
        self._holds: WeakSet[Hold] = WeakSet()
        self.cuts = 0  # how often the end was cut: a read that began before must not be believed
        self.unsynced_cut: Segment | None = None  # where the log was cut last, until that is durable
        self.cleaned_to: int | None = None  # how far compaction has come; None when it has never been here
        self._gaps_noted = loader.gaps_noted
        self.refresh_stable_offset()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        high_watermark: int = 0,
        durable_end: int = 0,
    ) -> Self:
        """Create the log, or open it and recover what a crash has left. May wait for the disk. Raises OSError.

        The recovery point, log start and high watermark are those of the data directory's checkpoints. With `durable_end`
        a log that has lost anything below it is refused as it is (OSError).
        """
        loader = Loader(
            disk,
            directory,
            config,
            OpenOptions(recovery_point, log_start_offset, high_watermark, clean, now_ms, durable_end),
        )
        loader.load()
        log = cls(disk, directory, config, loader, topic=topic, partition=partition, topic_id=topic_id)
        log.write_partition_metadata()
        log.update_high_watermark(high_watermark)
        return log

    def write_partition_metadata(self) -> None:
        """Keep the topic id beside the data. Durable with the first flush; a file that got lost is written again."""
        path = f"{self.directory}/{checkpoint.PARTITION_METADATA}"
        content = checkpoint.encode_partition_metadata(self.topic_id)
        if self.topic_id == checkpoint.ZERO_UUID:
            return
        if not self.disk.exists(path) or self.disk.read_file(path) != content:
            file = self.disk.open(path, create=True)
            file.truncate(0)
            file.write(0, content)
            file.close()
            self.flusher.metadata_unsynced = True

    def note_gaps(self) -> None:
        """From here on a gap between two offsets is no damage. Durable with the next flush, before what it speaks of."""
        if not self._gaps_noted:
            self.disk.open(f"{self.directory}/{names.GAPS_MARK}", create=True).close()
            self.flusher.names_changed = True
            self._gaps_noted = True

    def roll(self, now_ms: int, first_offset: int | None = None) -> Segment:
        """Seal the active segment and open one for what comes next. Raises OSError."""
        base_offset = max(self.log_end_offset, first_offset or 0)
        sealed = self.segments.active
        if sealed.base_offset == base_offset:
            return sealed
        sealed.seal()
        self.snapshots.take(self.state.producers.values(), base_offset)
        for suffix in names.SEGMENT_SUFFIXES:
            self.disk.remove(f"{self.directory}/{names.offset_file(base_offset, suffix)}")
        segment = Segment(self.disk, self.directory, base_offset, created_ms=now_ms, create=True)
        self.segments.add(segment)
        self.segments.note_index_use(sealed)
        self.flusher.names_changed = True
        return segment

    # -- watermarks ---------------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Move the high watermark up to `offset`, never above the log end and never back; the last stable offset follows."""
        offset = min(offset, self.log_end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.state.high_watermark_moved(offset)
            self.refresh_stable_offset()

    def refresh_stable_offset(self) -> None:
        """Last stable offset: the first unstable one if it is below the high watermark, which is read once (KAFKA-9807)."""
        high_watermark = self.high_watermark
        unstable = self.state.first_unstable_offset
        if unstable is not None:
            unstable = max(unstable, self.log_start_offset)
        self.first_unstable_offset = unstable
        self.last_stable_offset = high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        return self.flusher.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Where a recovery after an unclean stop has to begin."""
        return self.flusher.recovery_point(self.segments.active.base_offset)

    @property
    def sealed_unflushed(self) -> bool:
        """Whether a segment was rolled that is not durable yet: it is to be flushed soon, as Kafka does."""
        return self.recovery_point < self.segments.active.base_offset

    @property
    def is_empty(self) -> bool:
        return self.log_end_offset == self.log_start_offset

    # -- leader epochs --------------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """-1 when no leader has written or been announced yet."""
        return self.epochs.latest

    def assign_epoch(self, leader_epoch: int) -> None:
        """A leader of that epoch begins at the log end."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        return self.epochs.epoch_for(offset)

    def epoch_at_start(self) -> int:
        """The epoch of the log start, -1 unless an entry covers it."""
        return self.epochs.epoch_for(self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it, (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- producers ------------------------------------------------------------------------------------------------------------

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, supports_epoch_bump: bool
    ) -> int:
        """The guard for the append that follows once the coordinator has confirmed the transaction (KIP-890).

        0 when no confirmation is needed, since the transaction is open here. Raises Refusal(INVALID_PRODUCER_EPOCH).
        """
        return self.state.start_verification(
            producer_id, producer_epoch, sequence, supports_epoch_bump=supports_epoch_bump
        )

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.state.has_ongoing_transaction(producer_id, producer_epoch)

    def verification_guard(self, producer_id: int) -> int:
        return self.state.verification_guard(producer_id)

    def active_producers(self) -> list[ProducerRow]:
        return [
            ProducerRow(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
            )
            for entry in self.state.producers.values()
        ]

    def ongoing_transactions(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, timestamp of the producer's last batch), by first offset."""
        return [
            (producer_id, first_offset, self.state.producers[producer_id].last_timestamp)
            for producer_id, first_offset in self.state.ongoing_transactions()
        ]

    def expire_producers(self, now_ms: int) -> int:
        """Forget idle producers; how many."""
        return self.state.expire(now_ms, self.config.producer_id_expiration_ms)

    # -- upkeep ---------------------------------------------------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        self.config = config

    async def flush(self, upto: int | None = None) -> None:
        """Return when everything below `upto` (default: all that has been appended) is on stable storage.

        Concurrent calls share one flush. Raises OSError, after which the log has failed.
        """
        end = self.log_end_offset if upto is None else min(upto, self.log_end_offset)
        hold = self.hold()
        try:
            await self.flusher.flush(self.segments, self.snapshots, self.epochs, end)
        except OSError:
            if not self.closed:
                self.failed = True
                raise
        finally:
            del hold

    def delete_expired_segments(self, now_ms: int) -> int:
        """Take segments beyond retention out of the log; how many. Their files go by `remove_deleted`. Raises OSError."""
        facts = [
            retention.SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp)
            for segment in self.segments
        ]
        count = retention.count_deletable(
            facts,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if count == 0:
            return 0
        try:
            if count == len(facts):
                self.roll(now_ms)
            self.retire(self.segments.remove_first(count))
        except OSError:
            self.failed = True
            raise
        self.move_log_start(self.segments.first.base_offset)
        return count

    def move_log_start(self, offset: int) -> None:
        """Records below `offset` are not to be seen any more; never back, never above the high watermark."""
        if self.log_start_offset < offset <= self.high_watermark:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.state.log_start_moved(offset)
            self.refresh_stable_offset()

    def retire(self, segments: list[Segment], *, replaced_by: Segment | None = None) -> None:
        """Rename the files of segments that were taken out, and remember them for `remove_deleted`. Raises OSError."""
        paths: list[str] = []
        for segment in segments:
            paths += segment.rename_away()
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                paths += self.snapshots.rename_away(segment.base_offset)
        self.deleted.append(DeletedFiles(paths, segments, WeakSet(self._holds)))

    def hold(self) -> Hold:
        """Keep all files that the log has now, until nobody has the hold any more."""
        hold = Hold()
        self._holds.add(hold)
        return hold

    def remove_deleted(self, now_ms: int) -> int:
        """Remove files that nobody holds, file.delete.delay.ms after the first call that saw them deleted."""
        removed = 0
        for files in list(self.deleted):
            if files.seen_ms is None:
                files.seen_ms = now_ms
            if now_ms - files.seen_ms >= self.config.file_delete_delay_ms and not files.holds:
                for path in files.paths:
                    self.disk.remove(path)
                for segment in files.segments:
                    segment.close()
                self.deleted.remove(files)
                removed += len(files.paths)
        return removed

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut the log so that it ends at `offset`, or at the start of the batch that holds it; whether anything was cut.

        Waits for the disk. The recovery point that is on the disk has to be lowered first: see
        `LogManager.lower_recovery_point`. Afterwards: `sync_cut`. Raises OSError, after which the log has failed.
        """
        try:
            return truncation.truncate_to(self, offset, now_ms=now_ms)
        except OSError:
            self.failed = True
            raise

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything; the log is empty and begins at `offset`. Waits for the disk, as `truncate_to` does."""
        try:
            truncation.start_at(self, offset, now_ms=now_ms)
        except OSError:
            self.failed = True
            raise

    async def sync_cut(self) -> None:
        """Return when it is durable that the log was cut, as it has to be before an append. Raises OSError, after which the log has failed."""
        try:
            await cuts.sync(self)
        except OSError:
            if not self.closed:
                self.failed = True
                raise

    def sync_cut_now(self) -> None:
        """As `sync_cut`, waiting on the spot, for who cannot await: a replica that leads before its cut is durable."""
        if self.unsynced_cut is None:
            return
        try:
            cuts.sync_now(self.disk, self.directory, self.unsynced_cut)
        except OSError:
            self.failed = True
            raise
        self.unsynced_cut = None

    def close(self, *, clean: bool) -> None:
        """Give up the files. With `clean` everything is made durable first, with a snapshot at the end. Raises OSError."""
        if self.closed:
            return
        try:
            if clean and not self.failed:
                self.sync_cut_now()
                self.segments.active.seal()
                if self.log_end_offset > 0:
                    self.snapshots.take(self.state.producers.values(), self.log_end_offset)
                self.flusher.flush_now(self.segments, self.snapshots, self.epochs, self.log_end_offset)
        finally:
            self.closed = True
            self.flusher.abandon()
            for segment in [*self.segments, *(each for files in self.deleted for each in files.segments)]:
                segment.close()
