"""Cutting a log at its end: segments, indexes, epochs, snapshots, producer state, watermarks (kafka-facts 6.9).

Producer state is brought to the new end before the offsets move (KAFKA-12153), or the first unstable offset would point at
a transaction that is no more. Rare, and allowed to wait for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.batches.scan import Scan
from odradek.storage.log.reads import load_indexes, locate, run_now
from odradek.storage.recovery import cuts
from odradek.storage.recovery.recovery import Replay, first_timestamp, replay_producers
from odradek.storage.segment.segment import Segment

if TYPE_CHECKING:
    from odradek.storage.log.log_base import LogBase


def truncate_to(log: LogBase, offset: int, *, now_ms: int) -> bool:
    """As `LogBase.truncate_to`."""
    if offset >= log.log_end_offset:
        # An epoch that begins at the end and has written nothing may be in the way of the leader's.
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments.first.base_offset:
        start_at(log, offset, now_ms=now_ms)
        return True
    cuts.announce(log.disk, log.directory)
    log.retire(log.segments.remove_from(offset + 1))
    end = _cut_segment(log, log.segments.active, offset)
    log.epochs.truncate_from_end(end)
    log.log_start_offset = min(log.log_start_offset, end)
    replay_producers(
        log.state,
        log.snapshots,
        log.segments,
        log.config,
        Replay(log.log_start_offset, log.high_watermark, end, False, now_ms),
    )
    _settle(log, end)
    return True


def start_at(log: LogBase, offset: int, *, now_ms: int) -> None:
    """As `LogBase.truncate_fully_and_start_at`."""
    cuts.announce(log.disk, log.directory)
    log.retire(log.segments.remove_from(-1))
    log.segments.add(Segment(log.disk, log.directory, offset, created_ms=now_ms, create=True))
    log.flusher.names_changed = True
    log.epochs.clear()
    log.snapshots.remove_outside(0, 0)
    log.state.clear(offset)
    log.log_start_offset = offset
    log.high_watermark = offset
    _settle(log, offset)


def _settle(log: LogBase, end: int) -> None:
    log.cuts += 1
    log.unsynced_cut = log.segments.active
    log.log_end_offset = end
    log.high_watermark = min(log.high_watermark, end)
    if log.cleaned_to is not None:
        log.cleaned_to = min(log.cleaned_to, end)
    log.state.high_watermark_moved(log.high_watermark)
    log.flusher.truncated(end, log.segments)
    log.refresh_stable_offset()


def _cut_segment(log: LogBase, segment: Segment, offset: int) -> int:
    """Cut before the batch that holds `offset`; the offset where the segment ends then."""
    interval = log.config.index_interval_bytes
    if segment.offset_index is None:
        run_now(load_indexes(segment, log.disk, interval))
    segment.forget_recent()
    found = run_now(locate(segment, log.disk, offset, segment.size, interval=interval))
    if found is None:
        return _end_offset(segment)
    position = found[0]
    cut = next(iter(Scan(segment.file, position, segment.size)), None)
    end = offset if cut is None else cut[1].base_offset
    segment.truncate(position, offset)
    _derive_newest(segment)
    return min(offset, end)


def _derive_newest(segment: Segment) -> None:
    """Largest timestamp and index state of what is left, from the last index entries on."""
    assert segment.time_index is not None
    assert segment.offset_index is not None
    segment.max_timestamp = segment.time_index.last_timestamp
    segment.offset_of_max_timestamp = segment.time_index.last_offset
    start, _ = segment.offset_index.position_for(segment.offset_of_max_timestamp)
    for _, header, _ in Scan(segment.file, start, segment.size):
        if header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.offset_of_max_timestamp = header.max_timestamp, header.last_offset
    segment.bytes_since_index_entry = segment.size - segment.offset_index.last_position
    segment.first_batch_timestamp = first_timestamp(segment)


def _end_offset(segment: Segment) -> int:
    assert segment.offset_index is not None
    ends = [
        header.last_offset + 1 for _, header, _ in Scan(segment.file, segment.offset_index.last_position, segment.size)
    ]
    return ends[-1] if ends else segment.base_offset
