"""Look-ups by timestamp if the headers of many small batches promise a timestamp that no record has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import HEADER_BYTES, read_header, seal_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.record_checks import SLICE_UNITS
from odradek.storage.log import timestamps
from odradek.storage.log.timestamp_tables import TimestampTables, make_table
from odradek.storage.log.timestamps import (
    BATCH_UNITS,
    DECODING_UNITS,
    ENTRIES_PER_UNIT,
    SEARCH_BYTES,
    LongWork,
    Search,
    TimestampAndOffset,
    TimestampSearch,
    UnlimitedLookUps,
)
from odradek.storage.segment.index import OffsetIndex, TimeIndex
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog
    from odradek.storage.segment.lookup import Piece

OLD_MS = NOW_MS - 1_000_000
BATCHES = 6_000


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def false_header(size: int = 1) -> bytes:
    """Return a batch of one old record whose header has a new timestamp."""
    data = batch(1, size=size, timestamp=OLD_MS)
    return seal_batch(replace(read_header(data), max_timestamp=NOW_MS), data[HEADER_BYTES:])


def search_in(log: PartitionLog, disk: FaultyDisk) -> TimestampSearch:
    config = log.config
    return TimestampSearch(
        log.local.directory,
        log.segments,
        disk,
        config.index_interval_bytes,
        config.max_message_bytes,
        TimestampTables(),
    )


class Steps:
    """Runs a look-up, and keeps the pieces that it reads and the batches that it decodes between two pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: list[Piece] = []
        self.decoded = [0]
        monkeypatch.setattr(timestamps, "make_table", self._make_table)

    def _make_table(self, *arguments: Any) -> Any:
        self.decoded[-1] += 1
        return make_table(*arguments)

    def run(self, search: Search) -> TimestampAndOffset | None:
        try:
            request = next(search)
            while True:
                data: Any = None
                if request is None:
                    self.decoded.append(0)
                elif isinstance(request, tuple):
                    self.pieces.append(request)
                    data = request[0].read(request[1], request[2])
                else:
                    assert isinstance(request, LongWork)
                request = search.send(data)
        except StopIteration as stop:
            found: TimestampAndOffset | None = stop.value
            return found


def test_bytes_after_a_batch_without_a_match_are_not_read_again(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path))
    data = false_header()
    for _ in range(BATCHES):
        append(log, data)
    append(log, batch(1, timestamp=NOW_MS))
    steps = Steps(monkeypatch)
    assert steps.run(search_in(log, disk).first_at_or_after(NOW_MS - 5, 0)) == (NOW_MS, BATCHES, 0)
    assert len(steps.pieces) <= log.segments.active.size // SEARCH_BYTES + 3
    assert sum(steps.decoded) == BATCHES + 1
    assert max(steps.decoded) <= SLICE_UNITS // DECODING_UNITS


def test_batch_that_does_not_fit_into_the_window_is_read_whole(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path))
    data = false_header(size=15_000)
    for _ in range(2 * SEARCH_BYTES // len(data)):
        append(log, data)
    append(log, batch(1, timestamp=NOW_MS))
    steps = Steps(monkeypatch)
    end = log.log_end_offset
    assert steps.run(search_in(log, disk).first_at_or_after(NOW_MS - 5, 0)) == (NOW_MS, end - 1, 0)
    assert len(steps.pieces) <= 2 * (log.segments.active.size // SEARCH_BYTES + 1)


def test_search_continues_behind_a_large_batch_without_a_match(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path))
    for data in (false_header(), false_header(size=50_000), false_header(), batch(1, timestamp=NOW_MS)):
        append(log, data)
    steps = Steps(monkeypatch)
    assert steps.run(search_in(log, disk).first_at_or_after(NOW_MS - 5, 0)) == (NOW_MS, 3, 0)


def truncate(log: PartitionLog) -> None:
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)


def close(log: PartitionLog) -> None:
    log.close(clean=False)


@pytest.mark.parametrize(
    ("change", "error"),
    [(truncate, ErrorCode.OFFSET_NOT_AVAILABLE), (close, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
async def test_change_of_the_log_during_a_pause_ends_the_look_up(
    disk: FaultyDisk, tmp_path: Path, change: Callable[[PartitionLog], None], error: ErrorCode
) -> None:
    log = open_log(disk, str(tmp_path))
    data = batch(1, size=1_000, timestamp=OLD_MS)
    for _ in range(2 * SEARCH_BYTES // len(data)):
        append(log, data)
    append(log, batch(1, timestamp=NOW_MS))

    class ChangingLookUps(UnlimitedLookUps):
        turns = 0

        async def next_turn(self) -> None:
            self.turns += 1
            if self.turns == 1:
                change(log)
            await super().next_turn()

    look_ups = ChangingLookUps()
    with pytest.raises(Refusal) as caught:
        await asyncio.wait_for(log.offset_for_timestamp(NOW_MS - 5, look_ups), 10)
    assert caught.value.error is error
    assert look_ups.turns <= 2 * SEARCH_BYTES * BATCH_UNITS // (len(data) * SLICE_UNITS) + 1


def test_look_up_pauses_after_it_has_loaded_large_indexes(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, batch(1, timestamp=NOW_MS))
    segment = log.segments.active
    offsets, times = OffsetIndex(0), TimeIndex(0)
    for entry in range(1, SLICE_UNITS * ENTRIES_PER_UNIT):
        offsets.append(entry, entry, entry)
    times.maybe_append(NOW_MS, 0)
    segment.replace_indexes(offsets, times)
    segment.unload_indexes()
    assert segment.offset_index is None
    steps = Steps(monkeypatch)
    assert steps.run(search_in(log, disk).first_at_or_after(NOW_MS, 0)) == (NOW_MS, 0, 0)
    assert len(steps.decoded) > 1
