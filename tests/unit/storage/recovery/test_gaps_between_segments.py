"""Compaction leaves gaps between segments. Recovery must not take one for lost records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from odradek.storage.config import CLEANUP_COMPACT, LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import names
from tests.support.logs import append, batch, headers, open_log

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

CONFIG: Final = LogConfig(segment_bytes=400, cleanup_policy=(CLEANUP_COMPACT,))
BATCHES: Final = 12


def without_second_segment(path: Path) -> tuple[list[int], int]:
    """Write a log whose second segment is missing, as if it was compacted to nothing. Return its bases and its end."""
    log = open_log(OsDisk(), str(path), CONFIG)
    for _ in range(BATCHES):
        append(log, batch(1, size=100))
    log.close(clean=True)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) >= 4
    for file in (path / "t-0").glob(f"{bases.pop(1):020d}.*"):
        file.unlink()
    (path / "t-0" / names.GAPS_MARK).touch()
    return bases, log.log_end_offset


def reopened(path: Path, *, recovery_point: int, cleaned_to: int | None) -> PartitionLog:
    return open_log(
        OsDisk(), str(path), CONFIG, recovery_point=recovery_point, cleaned_to=cleaned_to, high_watermark=BATCHES
    )


@pytest.mark.parametrize("by", ["recovery point", "cleaner offset"])
def test_recovery_accepts_a_gap_below_the_recovery_point_or_the_cleaner_offset(tmp_path: Path, by: str) -> None:
    """The checkpoint of the recovery points can be damaged, or lower since a recovery that began below it."""
    bases, end = without_second_segment(tmp_path)
    flushed = bases[-1] if by == "recovery point" else 0
    (tmp_path / "t-0" / names.offset_file(0, names.OFFSET_INDEX_SUFFIX)).unlink()  # all segments are recovered
    log = reopened(tmp_path, recovery_point=flushed, cleaned_to=bases[-1])
    assert [segment.base_offset for segment in log.segments] == bases
    assert (log.log_end_offset, headers(log)[-1].last_offset) == (end, end - 1)


@pytest.mark.parametrize("cleaned_to", [None, 1])
def test_recovery_truncates_at_a_gap_above_both(tmp_path: Path, cleaned_to: int | None) -> None:
    """A power failure can lose an older segment and keep a newer one."""
    bases, end = without_second_segment(tmp_path)
    log = reopened(tmp_path, recovery_point=0, cleaned_to=cleaned_to)
    assert bases[0] < log.log_end_offset < bases[1] < end
