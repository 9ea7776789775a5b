"""Derive the producer state from the newest usable snapshot and the batches after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


BATCHES_PER_COMMIT = 1_000
"""Maximum batches that one plan of changes of the producer state covers. It bounds the memory of the plan."""


class Replay(NamedTuple):
    """Offsets that bound a replay of producer state.

    `at_clean_start` is True if the log is opened after a clean shutdown.
    """

    log_start_offset: int
    high_watermark: int
    end_offset: int
    at_clean_start: bool
    monotonic_ms: int
    end_byte: int | None = None
    """Position of `end_offset` in its segment, if batches follow that recovery reads later."""


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
        state.load(entries, offset, monotonic_ms=replay.monotonic_ms)
    elif replay.at_clean_start and not had_snapshot:
        # A clean shutdown writes a snapshot whenever the log is not empty. Without one, the log is empty, or a broker
        # without producer state wrote its batches: they have no producer ids.
        for offset in due:
            if offset != end or not segments.active.needs_no_index_files:
                snapshots.take((), offset)
        state.end_offset = end
        return
    applier = BatchApplier(state, replay.monotonic_ms)
    # A snapshot ends between two batches, so a batch that is not in it begins at or above its offset.
    start = expected = state.end_offset
    tail = segments.from_offset(start)
    for segment, next_base in zip(tail, [*(segment.base_offset for segment in tail[1:]), end], strict=True):
        if max(segment.base_offset, start) >= end:
            break
        if segment.base_offset in due:
            applier.commit()
            snapshots.take(state.entries.values(), segment.base_offset)
        end_byte = replay.end_byte
        if end_byte is None or not segment.base_offset < end <= next_base:
            end_byte = segment.size
        index = segment.offset_index
        position = 0 if index is None else index.position_for(start)[0]
        for _, header, batch in Scan(segment.file, position, end_byte):
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
                    applier.add(header, marker)
                except Refusal as refusal:
                    _logger.warning("damaged control batch skipped", offset=header.base_offset, reason=refusal.message)
    applier.commit()
    state.end_offset = end
    if end in due and (state.entries or not segments.active.needs_no_index_files):
        if start < end and not replay.at_clean_start:
            snapshots.distrust(end)  # the snapshot that was flushed at the recovery start was not read
        snapshots.take(state.entries.values(), end)


class BatchApplier:
    """Apply the batches of a log to its producer state, in their order, with one commit for many batches.

    The caller calls `commit` before it uses the producer state.
    """

    def __init__(self, state: ProducerState, monotonic_ms: int, segment: Segment | None = None) -> None:
        """If `segment` is given, add aborted transactions to its index."""
        self._state = state
        self._monotonic_ms = monotonic_ms
        self._segment = segment
        self._plan = AppendPlan(Origin.REPLICATION, monotonic_ms)
        self._batches = 0

    def add(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Add a batch with a producer id. A control batch is committed with all batches before it.

        So the last stable offset in an index entry is that just after the marker.
        """
        self._state.plan(self._plan, header, header.base_offset, marker=marker)
        self._batches += 1
        if header.is_control or self._batches == BATCHES_PER_COMMIT:
            self.commit()

    def commit(self) -> None:
        """Apply all batches that were added."""
        plan, self._plan, self._batches = self._plan, AppendPlan(Origin.REPLICATION, self._monotonic_ms), 0
        self._state.commit(plan)
        for completed in plan.completed:
            if self._segment is not None:
                self._segment.index_if_aborted(completed, self._state.stable_offset_after(completed))
            self._state.complete(completed)
