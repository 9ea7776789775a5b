"""The log of one partition replica: append, read, roll, offsets, producer state.

All calls run on the event loop. They never wait for the device, unless their docstring says so. Reads that need the
device return a `ColdRead` or are `async`. One partition owns the log, so there are no locks.

If no file descriptor or memory is left (ResourcesExhausted), the log is unchanged, and the caller repeats the operation
later. A roll waits meanwhile: the active segment exceeds segment.bytes and segment.ms.

If a disk operation fails (any other OSError), the log accepts no more appends: `failed` is set and the partition must
go offline.
Until recovery opens the log again, one of two cases holds:

1. The write of the batches failed. The log end offset has not moved. Recovery truncates the bytes that were written.
2. The batches were written, but `.txnindex` was not (KAFKA-7866). The log end offset and the producers have moved, so
   no offset is assigned twice. The last stable offset and the end offset of the producer state have not moved, so no
   read_committed reader has received the end of the transaction. Recovery reads the marker and writes the index entry.

A violated invariant also sets `failed`. The error is a `LogViolation`, which is an OSError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from odradek.invariants.invariant import CHECKS
from odradek.invariants.storage import (
    FIRST_UNSTABLE_OFFSET,
    LOG_END_ADVANCES,
    LOG_OFFSETS,
    READ_RANGE,
    RECOVERY_POINT,
)
from odradek.protocol.batch import NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.validation import check_leader_append, check_replicated
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.log import retention
from odradek.storage.log.append import AppendInfo, prepare_follower_append, prepare_leader_append
from odradek.storage.log.empty_markers import EmptyMarkers
from odradek.storage.log.flushing import LogState
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.reads import LogReader, aborted_transactions, batch_out_of_range
from odradek.storage.log.timestamps import UnlimitedLookUps
from odradek.storage.producers.entry import Origin
from odradek.storage.recovery.loader import load
from odradek.storage.recovery.producer_replay import Replay, replay_producers

if TYPE_CHECKING:
    import uuid

    from odradek.client_shares import Client
    from odradek.invariants.invariant import Invariant, InvariantViolation
    from odradek.protocol.schema import Buffer
    from odradek.storage.batches.validation import CheckedBatch
    from odradek.storage.batches.work import WorkSlice
    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.append import PreparedAppend
    from odradek.storage.log.reads import ColdRead, ReadResult
    from odradek.storage.log.timestamps import LookUps, TimestampAndOffset
    from odradek.storage.recovery.loaded_log import LoadedLog, OpenOptions
    from odradek.storage.segment.segment import Segment


class PartitionLog:
    """Open log of a partition replica. Other classes read its attributes; only its methods change them."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        topic: str,
        partition: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.topic = topic
        self.partition = partition
        self.topic_id = loaded.topic_id
        self.local = LocalLog(disk, directory, loaded)
        self.segments = loaded.segments
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = self.last_stable_offset = loaded.log_start_offset
        self.first_unstable_offset: int | None = None
        self.cleaned_to: int | None = None
        """Offset up to which the log was compacted; None if it never was."""
        self._empty_markers = EmptyMarkers(self.local.truncation)
        self._reader = LogReader(self.local)
        self.refresh_stable_offset()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        options: OpenOptions,
        *,
        topic: str,
        partition: int,
        topic_id: uuid.UUID | None = None,
    ) -> Self:
        """Create the log, or open and recover it. Wait for the disk. Without `topic_id`, the log keeps the one it has.

        Raises:
            OSError: A disk operation fails, or records below `options.durable_end` are lost.
        """
        loaded = load(disk, directory, config, options)
        log = cls(disk, directory, config, loaded, topic=topic, partition=partition)
        log.cleaned_to = options.cleaned_to
        if topic_id is not None:
            log.set_topic_id(topic_id)
        log.update_high_watermark(options.high_watermark)
        return log

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Set the topic id, and write it to `partition.metadata` unless the file has it."""
        self.topic_id = topic_id
        self.local.write_topic_id(topic_id)

    def update_config(self, config: LogConfig) -> None:
        """Replace the configuration."""
        self.config = config

    # ---- append -----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        origin: Origin,
        now_ms: int,
        monotonic_ms: int,
        guard: int = 0,
        transaction_version: int = -1,
        allow_zstd: bool = True,
        work: WorkSlice | None = None,
        checked: CheckedBatch | None = None,
        client: Client | None = None,
    ) -> AppendInfo:
        """Check `records`, assign offsets, and write them. The buffer is not changed.

        `now_ms` is the wall clock, and `monotonic_ms` the clock by which producers are idle. `guard` is the result of
        `ProducerState.start_verification`. `transaction_version` is that of a marker (WriteTxnMarkers v2). `allow_zstd`
        is False for Produce below v7. `work` bounds the check of records in this call; without it, the check has no
        pause. `checked` is the result of a check that was longer. A new producer counts for the share of `client`.

        Raises:
            RecordCheckPending: The check of the records needs more than one slice of `work`. Nothing was written. The
                caller completes the check, and calls this method again with its result.
            Refusal: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
                UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
                TRANSACTION_COORDINATOR_FENCED or NOT_ENOUGH_REPLICAS. Nothing was written and nothing has changed.
            ResourcesExhausted: No descriptor or memory is left. Nothing was written and nothing has changed.
            OSError: A disk operation fails. The partition must go offline (see the docstring of the module).
        """
        local = self.local
        if local.failed or local.closed or local.truncation.unsynced is not None:
            local.check_writable()
        producers, config = self.producers, self.config
        if checked is None:
            batches = check_leader_append(records, origin, config, now_ms=now_ms, allow_zstd=allow_zstd, work=work)
        else:
            batches = [checked]
        if origin is Origin.CLIENT and (first := batches[0].header).has_producer:
            earlier = producers.duplicate_of(first)
            if earlier is not None:
                producers.touch(first.producer_id, monotonic_ms)
                return AppendInfo(
                    earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, duplicate=True
                )
        append = prepare_leader_append(
            batches,
            producers,
            config,
            log_end_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            origin=origin,
            monotonic_ms=monotonic_ms,
            guard=guard,
            transaction_version=transaction_version,
            client=client,
        )
        self._write(append, now_ms)
        log_append_time = now_ms if config.log_append_time else NO_TIMESTAMP
        return AppendInfo(append.first_offset, append.last_offset, log_append_time, self.log_start_offset)

    def append_as_follower(
        self, records: Buffer, *, now_ms: int, monotonic_ms: int, leader_epoch: int | None = None
    ) -> AppendInfo | None:
        """Write batches fetched from the leader unchanged. Return None if `records` holds no whole batch.

        `leader_epoch` is the epoch of the fetch request. A batch of a later epoch and all batches after it are dropped:
        they come from a leader that this replica does not follow yet (KAFKA-18723).

        Raises:
            Refusal: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE for batches below the log end. Nothing was written.
            TransactionCompactedAway: The leader has compacted away a transaction that is open here. Nothing was
                written.
            ResourcesExhausted: No descriptor or memory is left. Nothing was written.
            OSError: A disk operation fails. The partition must go offline (see the docstring of the module).
        """
        local = self.local
        if local.failed or local.closed or local.truncation.unsynced is not None:
            local.check_writable()
        batches = check_replicated(records, leader_epoch)
        if not batches:
            return None
        append = prepare_follower_append(
            records,
            batches,
            self.producers,
            monotonic_ms=monotonic_ms,
            empty_markers=self._empty_markers,
            log_start_offset=self.log_start_offset,
            first_unstable_offset=self.first_unstable_offset,
            log_end_offset=self.log_end_offset,
        )
        self._write(append, now_ms)
        return AppendInfo(append.first_offset, append.last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _write(self, append: PreparedAppend, now_ms: int) -> None:
        """Write the batches, and apply the plan of the append to the producer state."""
        plan, last_offset, producers = append.plan, append.last_offset, self.producers
        log_end_offset = self.log_end_offset
        if not log_end_offset <= append.first_offset <= last_offset:
            raise self._violated(LOG_END_ADVANCES, first_offset=append.first_offset, last_offset=last_offset)
        try:
            self.disk.check_space(self.directory, append.size)
            segment = self.local.append(append, self.config, log_end_offset, producers.entries, now_ms)
            self.log_end_offset = log_end_offset = last_offset + 1
            for header in append.headers:
                if header.leader_epoch != self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            if plan is not None:
                producers.commit(plan)
                for completed in plan.completed:
                    segment.index_if_aborted(completed, producers.stable_offset_after(completed))
                    producers.complete(completed)
        except ResourcesExhausted:
            raise  # raised only by `check_space` and `local.append`, which have changed nothing
        except OSError:
            self.local.failed = True
            raise
        producers.end_offset = log_end_offset
        if plan is not None:
            self.refresh_stable_offset()

    def roll(self, now_ms: int, first_offset: int | None = None) -> Segment:
        """Seal the active segment. Create the next one at the log end, or at `first_offset` if that is greater.

        Return the active segment.

        Raises:
            OSError: A disk operation fails.
        """
        base_offset = max(self.log_end_offset, first_offset or 0)
        if self.segments.active.base_offset == base_offset:
            return self.segments.active
        return self.local.roll(base_offset, self.producers.entries.values(), now_ms)

    # ---- offsets and epochs -----------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Advance the high watermark to `offset`, at most to the log end. It never moves back.

        The last stable offset follows.
        """
        offset = min(offset, self.log_end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.high_watermark_moved(offset)
            self.refresh_stable_offset()

    def refresh_stable_offset(self) -> None:
        """Set the last stable offset to the first unstable offset, at most the high watermark."""
        high_watermark = self.high_watermark  # read once (KAFKA-9807)
        unstable = self.producers.first_unstable_offset
        if unstable is not None:
            unstable = max(unstable, self.log_start_offset)
        self.first_unstable_offset = unstable
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        if not self.log_start_offset <= stable <= high_watermark <= self.log_end_offset:
            raise self._violated(LOG_OFFSETS, computed_last_stable_offset=stable)
        self.last_stable_offset = stable
        if CHECKS.expensive and (conflict := self.producers.inconsistent_transactions()):
            raise self._violated(FIRST_UNSTABLE_OFFSET, **conflict)

    def _violated(self, invariant: Invariant, **values: object) -> InvariantViolation:
        """Mark the log as failed. Return the error to raise."""
        self.local.failed = True
        return invariant.violated(
            **values,
            log=self.directory,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
        )

    def advance_log_start(self, offset: int) -> None:
        """Advance the log start offset to `offset`, unless that is above the high watermark. It never moves back."""
        if self.log_start_offset < offset <= self.high_watermark:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)
            self.refresh_stable_offset()

    @property
    def is_empty(self) -> bool:
        """True if the log has no records that can be read."""
        return self.log_end_offset == self.log_start_offset

    def assign_epoch(self, leader_epoch: int) -> None:
        """Note that the leader epoch begins at the log end."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) for OffsetForLeaderEpoch; (-1, -1) if the epoch is not known."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, monotonic_ms: int) -> int:
        """Remove expired producers. Return their number."""
        return self.producers.expire(monotonic_ms, self.config.producer_id_expiration_ms)

    # ---- read -------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, limit: int | None = None, min_one_batch: bool = True
    ) -> ReadResult | ColdRead:
        """Read batches, from the one that holds `offset` up to `limit` (exclusive, default: the log end).

        Return at most `max_bytes`. With `min_one_batch`, return the first batch also if it is larger.

        Raises:
            Refusal: OFFSET_OUT_OF_RANGE outside of [log start, log end]; CORRUPT_MESSAGE if the file is damaged. A cold
                read may also raise OFFSET_NOT_AVAILABLE if the log was truncated during the read, and
                UNKNOWN_TOPIC_OR_PARTITION if it was closed.
            OSError: A disk operation fails.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            message = f"offset {offset} is not in the range of the log, {self.log_start_offset} to {end}"
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        bound = end if limit is None or limit > end else limit
        result = self._reader.read(
            offset,
            bound,
            end,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            interval=self.config.index_interval_bytes,
        )
        if CHECKS.expensive and (batch := batch_out_of_range(result, offset, bound)):
            raise self._violated(READ_RANGE, batch=batch, offset=offset, limit=bound)
        return result

    def aborted_transactions(self, fetch_offset: int, result: ReadResult) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of each aborted transaction that may have records in `result`."""
        return aborted_transactions(self.segments, self.log_end_offset, fetch_offset, result)

    def end_of_aborted(self, fetch_offset: int, count: int) -> int | None:
        """Return the offset after the marker of the aborted transaction number `count` from `fetch_offset` on.

        Return None if the segment of `fetch_offset` has fewer. A read covers one segment.
        """
        return self.segments.at(self.segments.number_for(fetch_offset)).txn_index.end_of(fetch_offset, count)

    async def offset_for_timestamp(self, timestamp: int, look_ups: LookUps | None = None) -> TimestampAndOffset | None:
        """Return (timestamp, offset, leader epoch) of the first record with a timestamp of at least `timestamp` (ms).

        Return None if there is none. `look_ups` limits the work on large batches, over all logs of a broker.
        """
        look_ups = look_ups or UnlimitedLookUps()
        return await self._reader.first_at_or_after(timestamp, self.log_start_offset, self.config, look_ups)

    async def max_timestamp_offset(self, look_ups: LookUps | None = None) -> TimestampAndOffset | None:
        """Return (timestamp, offset, leader epoch) of the first record with the newest timestamp.

        Return None if no record has a timestamp. `look_ups` limits the work on large batches.
        """
        return await self._reader.newest(self.config, look_ups or UnlimitedLookUps())

    # ---- files ------------------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """True after a write or flush has failed. The partition must go offline."""
        return self.local.failed

    @property
    def closed(self) -> bool:
        """True after the files were closed."""
        return self.local.closed

    @property
    def flushed_offset(self) -> int:
        """Offset below which all batches are durable."""
        return self.local.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Offset from which a recovery after an unclean shutdown begins."""
        return self.local.recovery_point

    @property
    def recovery_start(self) -> int | None:
        """Offset at which recovery may start in its segment; None if it must check the whole segment."""
        return self.local.recovery_start

    @property
    def bytes_to_recover(self) -> int:
        """Bytes of the batches that a recovery after an unclean shutdown would check now."""
        return self.local.bytes_to_recover

    @property
    def sealed_unflushed(self) -> bool:
        """True if a rolled segment is not durable yet. As in Kafka, the broker flushes it soon after the roll."""
        return self.recovery_point < self.segments.active.base_offset

    async def flush(self, upto: int | None = None) -> None:
        """Make all batches below `upto` durable (default: the log end). Concurrent calls share one flush.

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The flush can be repeated.
            OSError: A disk operation fails; the log is then marked as failed.
        """
        await self.local.flush(self.log_end_offset if upto is None else min(upto, self.log_end_offset))
        self._check_recovery_point()

    async def flush_for_recovery(self) -> None:
        """Make all batches durable, and write what a recovery needs to check only later batches.

        That is the index entries of the active segment, and a producer snapshot at the log end.

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The flush can be repeated.
            OSError: A disk operation fails; the log is then marked as failed.
        """
        await self.local.flush_for_recovery(self._state)
        self._check_recovery_point()

    def _state(self) -> LogState | None:
        """Return the state of the log; None if the log has failed.

        Then a record can be in the log without its entry in `.txnindex`. Recovery must derive the entry.
        """
        if self.failed:
            return None
        return LogState(self.log_end_offset, self.high_watermark, self.producers.entries.values())

    def _check_recovery_point(self) -> None:
        if not self.recovery_point <= self.flushed_offset <= self.log_end_offset:
            raise self._violated(RECOVERY_POINT, recovery_point=self.recovery_point, flushed_offset=self.flushed_offset)

    def delete_expired_segments(self, now_ms: int) -> int:
        """Remove expired segments from the log and return their number. `remove_deleted` removes their files.

        At most `retention.SEGMENTS_PER_STEP` are removed. If it is this number, there may be more.

        Raises:
            ResourcesExhausted: No descriptor or memory is left for a roll. Nothing has changed.
            OSError: A disk operation fails; the log is then marked as failed.
        """
        facts = self.segments.facts()
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
        count = min(count, retention.SEGMENTS_PER_STEP)
        with self.local.failing_on_error(can_repeat=True):
            if count == len(facts):
                self.roll(now_ms)
            self.local.remove_first(count)
        self.advance_log_start(self.segments.first.base_offset)
        return count

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files of segments that left the log file.delete.delay.ms ago. Return the number of files."""
        return self.local.remove_deleted(now_ms, self.config.file_delete_delay_ms)

    def note_cleaned(self, end_offset: int) -> None:
        """Note that the log was compacted up to `end_offset`."""
        self.cleaned_to = end_offset

    def lower_cleaned_to(self, offset: int) -> None:
        """Count nothing from `offset` on as compacted: the next compaction checks the batches appended there."""
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)

    # ---- truncate ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int, monotonic_ms: int) -> bool:
        """Truncate the log to `offset`, or to the start of the batch that holds it. Wait for the disk.

        Return True if any record was removed. The caller calls `LogManager.lower_recovery_point` before and
        `sync_truncation` after it.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        if offset >= self.log_end_offset:
            # An epoch that starts at the log end and has no record can conflict with the leader's epochs.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        with self.local.failing_on_error():
            end = self.local.truncate_to(offset, index_interval_bytes=self.config.index_interval_bytes)
            self.epochs.truncate_from_end(end)
            self.log_start_offset = min(self.log_start_offset, end)
            # Replay before the offsets move: otherwise the first unstable offset could be that of a truncated
            # transaction (KAFKA-12153).
            replay_producers(
                self.producers,
                self.local.snapshots,
                self.segments,
                Replay(
                    self.log_start_offset, self.high_watermark, end, at_clean_start=False, monotonic_ms=monotonic_ms
                ),
            )
            self._truncated_to(end)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove all records, so that the log is empty and begins at `offset`. Wait for the disk.

        The caller calls `LogManager.lower_recovery_point` before and `sync_truncation` after it.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        with self.local.failing_on_error():
            self.local.truncate_fully_and_start_at(offset, now_ms)
            self.epochs.clear()
            self.local.snapshots.remove_outside(0, 0)
            self.producers.clear(offset)
            self.log_start_offset = self.high_watermark = offset
            self._truncated_to(offset)

    def _truncated_to(self, end: int) -> None:
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.lower_cleaned_to(end)
        self.producers.high_watermark_moved(self.high_watermark)
        self.local.truncated_to(end)
        self._check_recovery_point()
        self.refresh_stable_offset()

    async def sync_truncation(self) -> None:
        """Make the last truncation durable. An append waits for the disk if this was not done.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        await self.local.sync_truncation()

    @property
    def closes_without_writes(self) -> bool:
        """True if a clean shutdown of the log writes nothing (`LocalLog.is_complete`)."""
        return self.closed or self.failed or self.local.is_complete(self.log_end_offset)

    def write_last(self) -> None:
        """Write all that a clean shutdown leaves (`LocalLog.write_last`). Raise OSError if a disk operation fails."""
        self.local.write_last(self.log_end_offset, self.producers.entries)

    def close(self, *, clean: bool) -> None:
        """Close all files. With `clean`, first flush everything and write a producer snapshot; wait for the disk.

        Raises:
            OSError: A disk operation fails. The files are closed.
        """
        try:
            if clean and not self.closes_without_writes:
                self.write_last()
                self.local.sync_now()
        finally:
            self.local.close()
