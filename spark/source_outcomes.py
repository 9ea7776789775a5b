"""Select the batches that become rows, with the outcomes of their transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from odradek.protocol.batch import BatchHeader, ControlType, control_type, iter_records, parse_end_txn_marker
from odradek.spark.source_columns import Batch, Marker, Outcome
from odradek.spark.source_records import body_of

CONTROL_BYTES_MAX: Final = 2**20
"""Maximum size of a control batch after decompression, in bytes."""
ENDS: Final = {ControlType.COMMIT: Outcome.COMMITTED, ControlType.ABORT: Outcome.ABORTED}

Select = Callable[[BatchHeader, memoryview, bool], Batch | None]
"""Function of a header, a batch, and whether its transaction is aborted. It returns None if the batch has no rows.

It raises Malformed if the batch is damaged.
"""


def visible(header: BatchHeader, batch: memoryview, aborted: bool) -> Batch | None:
    """Select all data except that of aborted transactions."""
    return None if header.is_control or aborted else Batch(body_of(header, batch))


def with_outcome(header: BatchHeader, batch: memoryview, aborted: bool) -> Batch:
    """Select a batch before the last stable offset."""
    marker = marker_of(header, batch)
    body = body_of(header, batch)
    if marker is not None:
        return Batch(body, outcome_of(marker), marker)
    if not header.is_transactional:
        return Batch(body)
    return Batch(body, Outcome.ABORTED if aborted else Outcome.COMMITTED)


def marker_of(header: BatchHeader, batch: memoryview) -> Marker | None:
    """Return the marker of a control batch. Return None for data, and for a control batch that compaction emptied.

    Raise Malformed if the batch is damaged.
    """
    if not header.is_control:
        return None
    record = next(iter_records(batch, max_decompressed_bytes=CONTROL_BYTES_MAX), None)
    if record is None:
        return None
    kind = control_type(record.key)
    return Marker(kind.name, parse_end_txn_marker(record.value) if kind in ENDS else None)


def outcome_of(marker: Marker) -> Outcome:
    """Return the outcome that a marker decides."""
    return ENDS.get(ControlType[marker.kind], Outcome.NONE)


class Markers:
    """Markers of a part of a log, in the order of their offsets. Memory grows with their number."""

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._outcomes: dict[int, list[Outcome]] = {}

    def add(self, header: BatchHeader, marker: Marker) -> None:
        """Add the marker of a batch. Its offset must be higher than those before."""
        self._offsets.setdefault(header.producer_id, []).append(header.base_offset)
        self._outcomes.setdefault(header.producer_id, []).append(outcome_of(marker))

    def select(self, header: BatchHeader, batch: memoryview, aborted: bool) -> Batch:
        """Select a batch after the last stable offset. The next marker of its producer decides the outcome."""
        if header.is_control or not header.is_transactional:
            return with_outcome(header, batch, aborted)
        index = bisect_right(self._offsets.get(header.producer_id, []), header.last_offset)
        outcomes = self._outcomes.get(header.producer_id, [])
        return Batch(body_of(header, batch), outcomes[index] if index < len(outcomes) else Outcome.OPEN)
