"""Look-ups of batches in segments: bounded windows, and pauses where the index has too few entries."""

from __future__ import annotations

from itertools import pairwise
from struct import pack
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.batch import HEADER_BYTES, build_batch, iter_batches, read_header
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.files import names
from odradek.storage.log.reads import ColdRead, read_batches, start
from odradek.storage.log.truncation import truncate_segment
from odradek.storage.segment.index import INDEX_INTERVAL_BYTES_MAX, OffsetIndex, TimeIndex
from odradek.storage.segment.lookup import WINDOWS_BEFORE_PAUSE, locate, run_now
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segments import Segments
from tests.support.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.segment.lookup import Piece

BATCH = build_batch([(None, b"", 1_000, ())])
BATCHES = 8 * INDEX_INTERVAL_BYTES_MAX // len(BATCH)
UNBOUNDED = 2**31 - 1
"""Largest value of index.interval.bytes."""
OFFSET = BATCHES - 100
"""Offset far from the beginning of a segment, and none of the recent ones."""


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def filled(disk: FaultyDisk, directory: Path, interval: int) -> Segment:
    """Return a segment with BATCHES batches of one record."""
    segment = Segment(disk, str(directory), 0, created_ms=0, create=True)
    buffers = [pack(">q", offset) + BATCH[8:] for offset in range(BATCHES)]
    segment.append([read_header(buffer) for buffer in buffers], buffers, interval)
    return segment


def without_entries(segment: Segment) -> Segment:
    """Remove the index entries, as if the segment had been written with a larger interval."""
    segment.replace_indexes(OffsetIndex(0), TimeIndex(0))
    return segment


def steps_to(segment: Segment, disk: FaultyDisk, offset: int, interval: int) -> tuple[list[Piece | None], int]:
    """Look `offset` up. Return the pieces and pauses that the look-up has requested, and the position found."""
    looking = locate(segment, disk, offset, segment.size, interval=interval)
    steps: list[Piece | None] = []
    try:
        step = next(looking)
        while True:
            steps.append(step)
            step = looking.send(b"" if step is None else step[0].read(step[1], step[2]))
    except StopIteration as stop:
        return steps, stop.value[0]


def test_interval_above_the_maximum_adds_an_entry_per_maximum(disk: FaultyDisk, tmp_path: Path) -> None:
    segment = filled(disk, tmp_path, UNBOUNDED)
    assert segment.offset_index is not None
    positions = [0, *(position for _, position in segment.offset_index.entries()), segment.size]
    distances = [after - before for before, after in pairwise(positions)]
    assert max(distances) <= INDEX_INTERVAL_BYTES_MAX + len(BATCH)


def test_rebuild_with_an_interval_above_the_maximum_adds_an_entry_per_maximum(disk: FaultyDisk, tmp_path: Path) -> None:
    segment = filled(disk, tmp_path, UNBOUNDED)
    assert segment.offset_index is not None
    entries = segment.offset_index.entries()
    segment.write_indexes()
    segment.unload_indexes()
    disk.replace_file_now(segment.path(names.OFFSET_INDEX_SUFFIX), b"?")
    segment.drop_recent()
    run_now(locate(segment, disk, OFFSET, segment.size, interval=UNBOUNDED))
    assert segment.offset_index.entries() == entries


def test_rebuild_ends_if_the_log_is_truncated_during_a_pause(disk: FaultyDisk, tmp_path: Path) -> None:
    segment = filled(disk, tmp_path, UNBOUNDED)
    segment.write_indexes()
    segment.unload_indexes()
    disk.replace_file_now(segment.path(names.OFFSET_INDEX_SUFFIX), b"?")
    segment.drop_recent()
    looking = locate(segment, disk, OFFSET, segment.size, interval=UNBOUNDED)
    with pytest.raises(Refusal) as refused:
        step = next(looking)
        for _ in range(10):
            if step is None or step[0] is segment.file:
                step = looking.send(b"")
            else:
                step = looking.send(step[0].read(step[1], step[2]))
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE


def test_read_with_a_large_interval_is_complete_in_one_step(disk: FaultyDisk, tmp_path: Path) -> None:
    segment = filled(disk, tmp_path, UNBOUNDED)
    steps, position = steps_to(segment, disk, OFFSET, UNBOUNDED)
    assert position == OFFSET * len(BATCH)
    assert len(steps) <= WINDOWS_BEFORE_PAUSE
    assert None not in steps


@pytest.mark.parametrize("interval", [0, 4_096, UNBOUNDED])
def test_look_up_without_index_entries_reads_bounded_windows_and_pauses(
    disk: FaultyDisk, tmp_path: Path, interval: int
) -> None:
    segment = without_entries(filled(disk, tmp_path, interval))
    steps, position = steps_to(segment, disk, OFFSET, interval)
    assert position == OFFSET * len(BATCH)
    pieces = [step for step in steps if step is not None]
    assert max(size for _, _, size in pieces) <= INDEX_INTERVAL_BYTES_MAX + HEADER_BYTES
    assert len(pieces) <= segment.size // INDEX_INTERVAL_BYTES_MAX + WINDOWS_BEFORE_PAUSE + 1
    assert steps.count(None) == len(pieces) - WINDOWS_BEFORE_PAUSE
    assert all(piece is not None or steps[at + 1] is not None for at, piece in enumerate(steps))


def test_truncation_without_index_entries_finds_the_batch(disk: FaultyDisk, tmp_path: Path) -> None:
    segment = without_entries(filled(disk, tmp_path, UNBOUNDED))
    assert truncate_segment(segment, disk, OFFSET, interval=UNBOUNDED) == OFFSET
    assert segment.size == OFFSET * len(BATCH)


@pytest.mark.parametrize(("offset", "limit"), [(OFFSET, BATCHES), (0, OFFSET)])
async def test_read_without_index_entries_pauses_and_then_returns_the_batches(
    disk: FaultyDisk, tmp_path: Path, offset: int, limit: int
) -> None:
    segments = Segments()
    segments.add(without_entries(filled(disk, tmp_path, UNBOUNDED)))
    reading = read_batches(
        segments,
        disk,
        offset,
        limit=limit,
        log_end=BATCHES,
        max_bytes=segments.active.size,
        min_one_batch=True,
        interval=UNBOUNDED,
    )
    result = start(reading)
    assert isinstance(result, ColdRead)
    records = (await result.resolve()).records
    assert [header.base_offset for header, _ in iter_batches(records)] == list(range(offset, limit))
