"""A partition's log: append, read, roll, watermarks, producer state.

Everything here is a plain call on the event loop that never waits for the device; what has to wait is a `ColdRead` or
`async`. One owner (the partition) calls it, so there are no locks.

When the disk refuses (OSError), the log stops taking appends: `failed` is set and the caller takes the partition offline.
What then holds until the log is opened again, uncleanly, and recovered:
* data not written: the log end has not moved; bytes behind it may be torn, recovery cuts them;
* data written, `.txnindex` not (KAFKA-7866): the log end and the producers have moved, so no offset is given twice, but the
  last stable offset and `producer state end` have not, so no reader has seen the transaction end. Recovery reads the marker
  and writes the entry.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.validation import check_leader_append, check_replicated
from odradek.storage.log import reads, timestamps
from odradek.storage.log.log_base import LogBase, ProducerRow
from odradek.storage.log.reads import ColdRead, ReadResult
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import AppendPlan
from odradek.storage.segment.index import RELATIVE_OFFSET_MAX
from odradek.storage.segment.segment import roll_jitter_ms, settle_aborted, should_roll

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.disk.port import Buffer
    from odradek.storage.log.timestamps import Found
    from odradek.storage.segment.segment import Segment

__all__ = ["AppendInfo", "ColdRead", "Origin", "PartitionLog", "ProducerRow", "ReadResult"]

NO_TIMESTAMP = -1


class AppendInfo(NamedTuple):
    """Where an append lies. A `duplicate` wrote nothing: the offsets are those of the batch that it repeats."""

    first_offset: int
    last_offset: int
    log_append_time: int  # ms, -1 under CreateTime
    log_start_offset: int
    duplicate: bool = False


class LeaderForgot(Refusal):
    """The leader has compacted away a transaction that is open here: the log has to be cut at `offset` and fetched again."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.offset = offset


class PartitionLog(LogBase):
    """A log that is open. Made by `open`."""

    _cut_for: tuple[int, int] | None = None
    """The emptied marker that the log was to be cut for last, and which cut that was."""

    # -- append -----------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        origin: Origin,
        now_ms: int,
        guard: int = 0,
        transaction_version: int = -1,
        allow_zstd: bool = True,
    ) -> AppendInfo:
        """Check, number and write `records`, which are not changed.

        `guard` is what `start_verification` gave; `transaction_version` belongs to markers (WriteTxnMarkers v2);
        `allow_zstd` is False for Produce below v7.

        Raises:
            Refusal: nothing was written, nothing has changed. CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
                MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS.
            OSError: see the head of this file; the partition has to go offline.
        """
        if self.failed or self.closed or self.unsynced_cut is not None:
            self._check_writable()
        batches = check_leader_append(records, origin, self.config, now_ms=now_ms, allow_zstd=allow_zstd)
        if origin is Origin.CLIENT and batches[0].header.has_producer:
            earlier = self.state.duplicate_of(batches[0].header)
            if earlier is not None:
                self.state.heard_of(batches[0].header.producer_id, now_ms)
                return AppendInfo(
                    earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, duplicate=True
                )
        plan: AppendPlan | None = None
        headers: list[BatchHeader] = []
        buffers: list[Buffer] = []
        offset = self.log_end_offset
        for batch in batches:
            header = batch.header
            batch.place(offset, leader_epoch)
            headers.append(header)
            buffers += (batch.head, batch.body)
            if header.has_producer:
                plan = plan or AppendPlan(origin, now_ms)
                self.state.plan(
                    plan,
                    header,
                    offset,
                    marker=batch.marker,
                    guard=guard,
                    transaction_version=transaction_version,
                    verification_enabled=self.config.verification_enabled,
                )
            offset = header.last_offset + 1
        info = AppendInfo(
            self.log_end_offset,
            offset - 1,
            now_ms if self.config.log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
        )
        self._write(headers, buffers, plan, now_ms, limit_size=True)
        return info

    def append_as_follower(self, records: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Write a piece of the leader's log as it is; None when it holds no whole batch.

        Batches of a later epoch than `leader_epoch`, in which the piece was asked for, are left out with all that follows
        them: they come from a leader that this replica does not know yet (KAFKA-18723).

        Raises:
            Refusal: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE for batches below the log end; nothing was written.
            LeaderForgot: see there; nothing was written.
            OSError: as for `append_as_leader`.
        """
        if self.failed or self.closed or self.unsynced_cut is not None:
            self._check_writable()
        batches = check_replicated(records, leader_epoch)
        if not batches:
            return None
        plan: AppendPlan | None = None
        headers = [header for header, _ in batches]
        first_offset = end = headers[0].base_offset
        size, gap = 0, first_offset != self.log_end_offset
        if first_offset < self.log_end_offset:
            raise Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {first_offset} is below the end, {self.log_end_offset}"
            )
        for header, marker in batches:
            if header.base_offset != end:
                if header.base_offset < end:
                    raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} comes after {end - 1}")
                gap = True
            if header.has_producer:
                plan = plan or AppendPlan(Origin.REPLICATION, now_ms)
                if header.is_control and header.record_count == 0:
                    self._check_emptied(plan, header)
                self.state.plan(plan, header, header.base_offset, marker=marker)
            end = header.last_offset + 1
            size += header.size
        self._write(headers, [memoryview(records)[:size]], plan, now_ms, limit_size=False, gap=gap)
        return AppendInfo(first_offset, end - 1, NO_TIMESTAMP, self.log_start_offset)

    def _check_emptied(self, plan: AppendPlan, marker: BatchHeader) -> None:
        """A marker without its record has ended a transaction of which the leader has no data left. Here there must be none either.

        There is where this replica was away for longer than delete.retention.ms. How the transaction ended is not known any
        more, and its data may have been aborted. The replica is in sync with nobody, since it lacks what was below the high
        watermark when the leader compacted: it may be cut below its own one. All that is undecided goes at once. Kafka passes
        over such a batch, and takes the data for part of the producer's next transaction.
        """
        update = plan.updates.get(marker.producer_id)
        entry = self.state.producers.get(marker.producer_id) if update is None else update.entry
        opened = None if entry is None else entry.transaction_first_offset
        if opened is None or not self.log_start_offset <= opened < self.log_end_offset:
            return  # what lies below the log start nobody reads
        cut_for = marker.base_offset, self.cuts
        if self._cut_for != cut_for:  # else it came again with the data: nothing is to be had by another cut
            self._cut_for = marker.base_offset, self.cuts + 1
            first = self.first_unstable_offset
            told = f"the leader has nothing left of what producer {marker.producer_id} wrote from offset {opened} on"
            raise LeaderForgot(opened if first is None else min(first, opened), told)

    def _write(
        self,
        headers: list[BatchHeader],
        buffers: list[Buffer],
        plan: AppendPlan | None,
        now_ms: int,
        *,
        limit_size: bool,
        gap: bool = False,
    ) -> None:
        """`buffers` are the bytes of the batches that have those headers; `plan` is what they do to their producers, if any has one.

        `gap`: there are offsets before or between them that do not exist.
        """
        size, newest = 0, NO_TIMESTAMP
        for header in headers:
            size += header.size
            newest = max(newest, header.max_timestamp)
        config = self.config
        if limit_size and size > config.segment_bytes:
            raise Refusal(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit a segment of {config.segment_bytes} bytes"
            )
        last_offset = headers[-1].last_offset
        try:
            segment = self.segments.active
            if should_roll(
                segment,
                config,
                incoming=size,
                last_offset=last_offset,
                newest_timestamp=newest,
                now_ms=now_ms,
                jitter_ms=config.segment_jitter_ms and roll_jitter_ms(config, self.directory, segment.base_offset),
            ):
                # At the log end, also where the leader's log has a gap: a segment that begins elsewhere is one that was lost.
                fits = last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
                segment = self.roll(now_ms, None if fits else headers[0].base_offset)
            if gap:
                self.note_gaps()
            segment.append(headers, buffers, config.index_interval_bytes)
            self.log_end_offset = last_offset + 1
            for header in headers:
                if header.leader_epoch != self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            if plan is not None:
                self.state.commit(plan)
                for completed in plan.completed:
                    settle_aborted(segment, completed, self.state.stable_offset_after(completed))
                    self.state.complete(completed)
        except OSError:
            self.failed = True
            raise
        self.state.end_offset = self.log_end_offset
        if plan is not None:
            self.refresh_stable_offset()

    def _check_writable(self) -> None:
        if self.failed or self.closed:
            raise OSError(errno.EIO, f"{self.directory}: the log has failed or is closed")
        if self.unsynced_cut is not None:
            self.sync_cut_now()

    # -- read ---------------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, limit: int | None = None, min_one_batch: bool = True
    ) -> ReadResult | ColdRead:
        """Batches from the one that holds `offset` on, none at or above `limit` (default: the log end).

        Raises:
            Refusal: OFFSET_OUT_OF_RANGE outside of [log start, log end]; CORRUPT_MESSAGE where the file is damaged. From a cold
                read also OFFSET_NOT_AVAILABLE, when the log was cut meanwhile.
            OSError: the disk refuses.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise Refusal(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside of {self.log_start_offset} to {end}"
            )
        if limit is None or limit >= end:
            at_the_end = self._at_the_end(offset, max_bytes)
            if at_the_end is not None:
                return at_the_end
        bound = reads.Bound(end if limit is None else min(limit, end), end)
        reading = reads.read_batches(
            self.segments,
            self.disk,
            offset,
            bound,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            interval=self.config.index_interval_bytes,
        )
        found = reads.start(reading)
        if isinstance(found, ColdRead):
            found.check = partial(self._check_uncut, self.cuts)
            found.hold = self.hold()
            found.log = self.segments.from_offset(offset)
        return found

    def _at_the_end(self, offset: int, max_bytes: int) -> ReadResult | None:
        """All from `offset` to the log end, where it was appended so recently that it is in memory, and fits."""
        segment = self.segments.active
        position = segment.recent.get(offset)
        if position is None:
            return None
        size = segment.size - position
        if size > max_bytes or size > len(segment.tail):
            return None
        return ReadResult(segment.tail[-size:], offset, segment, position)

    def _check_uncut(self, cuts: int) -> None:
        if self.cuts != cuts:
            # Not OFFSET_OUT_OF_RANGE: the offset may still be there, and the reader would give up its position.
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, "the log was cut while it was read")

    def aborted_transactions(self, fetch_offset: int, result: ReadResult) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that a reader of `result` has to know of (kafka-facts 6.8).

        In the order of their markers; transactions that do not touch what was read may be among them.
        """
        if not len(result.records):
            return []
        source = result.segment
        assert source is not None
        index = source.offset_index
        upper = index.offset_at_or_after(result.position + len(result.records)) if index is not None else None
        if upper is None:
            upper = self.segments.end_of(self.segments.number_for(source.base_offset), self.log_end_offset)
        segments: Sequence[Segment] = self.segments.from_offset(source.base_offset)
        if segments[0] is not source:
            # Cleaned while it was read, and so are those with the markers, maybe: of what was aborted in it nothing is in their
            # new indexes.
            segments = result.log[result.log.index(source) :]
        found: list[tuple[int, int]] = []
        for segment in segments:
            if segment.txn_index.collect(fetch_offset, upper, found):
                break
        return list(dict.fromkeys(found))

    async def offset_for_timestamp(self, timestamp: int) -> Found | None:
        """(timestamp, offset, leader epoch) of the first record whose timestamp is not below `timestamp` (ms)."""
        interval = self.config.index_interval_bytes
        start = self.log_start_offset
        return await self._search(
            timestamps.first_at_or_after(self.segments, self.disk, timestamp, start, interval=interval)
        )

    async def max_timestamp_offset(self) -> Found | None:
        """(timestamp, offset, leader epoch) of the first record that has the newest timestamp; None without timestamps."""
        return await self._search(
            timestamps.newest(self.segments, self.disk, interval=self.config.index_interval_bytes)
        )

    async def _search(self, search: Generator[reads.Piece, Buffer, Found | None]) -> Found | None:
        hold = self.hold()
        try:
            return await reads.run(search)
        finally:
            del hold
