"""Derive the producer state from the newest usable snapshot and the batches after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.errors import Refusal
from odradek.storage.batches.scan import Scan
from odradek.storage.batches.validation import read_marker
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import AppendPlan

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.storage.producers.entry import EndMarker
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.producers.state import ProducerState
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Replay:
    """Offsets that bound a replay of producer state.

    `at_clean_start` is True if the log is opened after a clean shutdown.
    """

    log_start_offset: int
    high_watermark: int
    end_offset: int
    at_clean_start: bool
    now_ms: int


def replay_producers(state: ProducerState, snapshots: SnapshotFiles, segments: Segments, replay: Replay) -> None:
    """Set `state` to the producer state at `replay.end_offset`.

    A snapshot does not record which transactions ended above the high watermark and are still unstable. Kafka loads the
    newest snapshot and loses these transactions. This function instead loads the newest snapshot that is not above the
    high watermark. Without one, there are two cases:

    - The log begins at offset 0: replay the whole log.
    - The first segments were deleted: load the newest snapshot, as Kafka does, so that producers whose records were
      deleted keep their state. Without any snapshot, replay from the first segment.
    """
    first, end = segments.first.base_offset, replay.end_offset
    had_snapshot = bool(snapshots.offsets)
    snapshots.remove_outside(max(first - 1, 0), end)
    bases = [segment.base_offset for segment in segments if segment.base_offset < end]
    due = [offset for offset in [*bases[-2:], end] if offset > replay.log_start_offset]
    state.clear(first)
    snapshot = snapshots.load_newest(replay.high_watermark)
    if snapshot is None and first > 0:
        snapshot = snapshots.load_newest(end)
    if snapshot is not None:
        offset, entries = snapshot
        state.load(entries, offset, now_ms=replay.now_ms)
    elif replay.at_clean_start and not had_snapshot:
        # A clean shutdown writes a snapshot whenever the log is not empty. Without one, the log is empty, or a broker
        # without producer state wrote its batches: they have no producer ids.
        for offset in due:
            snapshots.take((), offset)
        state.end_offset = end
        return
    # A snapshot ends between two batches, so a batch that is not in it begins at or above its offset.
    start = expected = state.end_offset
    tail = segments.from_offset(start)
    for segment, next_base in zip(tail, [*(segment.base_offset for segment in tail[1:]), end], strict=True):
        if max(segment.base_offset, start) >= end:
            break
        if segment.base_offset in due:
            snapshots.take(state.entries.values(), segment.base_offset)
        index = segment.offset_index
        position = 0 if index is None else index.position_for(start)[0]
        for _, header, batch in Scan(segment.file, position, segment.size):
            if header.last_offset < start:
                continue
            if header.base_offset < expected or header.last_offset >= min(next_base, end):
                # The checksum does not cover the base offset, and recovery trusts bytes below the recovery point.
                _logger.warning("out-of-order batch skipped", offset=header.base_offset, expected=expected)
                continue
            expected = header.last_offset + 1
            if header.has_producer:
                try:
                    marker = read_marker(batch, header) if header.is_control else None
                    apply_batch(state, header, marker, None, replay.now_ms)
                except Refusal as refusal:
                    _logger.warning("damaged control batch skipped", offset=header.base_offset, reason=refusal.message)
    state.end_offset = end
    if end in due:
        snapshots.take(state.entries.values(), end)


def apply_batch(
    state: ProducerState, header: BatchHeader, marker: EndMarker | None, segment: Segment | None, now_ms: int
) -> None:
    """Apply a batch of the log to the producer state. If `segment` is given, add aborted transactions to its index."""
    plan = AppendPlan(Origin.REPLICATION, now_ms)
    state.plan(plan, header, header.base_offset, marker=marker)
    state.commit(plan)
    for completed in plan.completed:
        if segment is not None:
            segment.index_if_aborted(completed, state.stable_offset_after(completed))
        state.complete(completed)
