"""Segment files of stopped or copied brokers: choice of the replica, ends, compaction, unusable directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.audit.segments import EVERYWHERE, LogDirectories, LogDirectoryUnusable
from odradek.protocol.batch import build_batch
from tests.support.batches import marker

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.pipeline.audit.evidence import LogRange


def data(offset: int, leader_epoch: int = 0) -> bytes:
    return build_batch([(None, b"v", 1_000, ())], base_offset=offset, leader_epoch=leader_epoch)


def write(directory: Path, partition: str, *segments: tuple[int, bytes]) -> Path:
    """Write segments by base offset into a partition directory. Return the log directory."""
    path = directory / partition
    path.mkdir(parents=True, exist_ok=True)
    for base, content in segments:
        (path / f"{base:020d}.log").write_bytes(content)
    return directory


def ranges(*directories: Path) -> dict[str, LogRange]:
    source = LogDirectories(directories)
    return {f"{each['topic']}-{each['partition']}": source.scan(each)[1] for each in source.partitions()}


def test_each_partition_is_read_once_from_the_replica_with_the_highest_epoch_then_offset(tmp_path: Path) -> None:
    first = write(tmp_path / "1", "t-0", (0, data(0) + data(1) + data(2)))
    write(first, "t-1", (0, data(0)))
    second = write(tmp_path / "2", "t-0", (0, data(0) + data(1, leader_epoch=4)))
    write(second, "t-1", (0, data(0) + data(1)))
    write(second, "other-topic-7", (0, b""))
    found = ranges(first, second)
    assert {name: (log.start, log.end) for name, log in found.items()} == {
        "other-topic-7": (0, 0),
        "t-0": (0, 2),
        "t-1": (0, 2),
    }


def test_segments_are_read_in_order_and_other_files_are_ignored(tmp_path: Path) -> None:
    directory = write(tmp_path, "t-0", (12, data(12)), (10, data(10) + data(11)))
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "00000000000000000010.index"):
        (directory / "t-0" / name).write_bytes(b"x")
    write(tmp_path, "t-1.0123456789abcdef0123456789abcdef-delete", (0, data(0)))
    [log] = ranges(directory).values()
    assert (log.start, log.end, log.batches, log.defect) == (10, 13, 3, "")
    assert not log.is_whole


def test_incomplete_batch_at_the_end_of_the_log_is_its_end(tmp_path: Path) -> None:
    for length in (1, 60, 65):
        directory = write(tmp_path / str(length), "t-0", (0, data(0) + data(1)[:length]))
        assert (ranges(directory)["t-0"].end, ranges(directory)["t-0"].defect) == (1, "")


def test_latest_time_of_a_log_is_that_of_a_broker(tmp_path: Path) -> None:
    future = build_batch([(None, b"v", 2**62, ())], base_offset=1)
    directory = write(tmp_path, "t-0", (0, marker(0, 7, commit=True) + future))
    assert ranges(directory)["t-0"].latest_ms == 1_000


def test_incomplete_segment_before_the_last_one_is_damaged(tmp_path: Path) -> None:
    directory = write(tmp_path, "t-0", (0, data(0) + data(1)[:65]), (2, data(2)))
    log = ranges(directory)["t-0"]
    assert log.end == 1
    assert "ends within the batch" in log.defect


def test_altered_batch_is_damaged(tmp_path: Path) -> None:
    damaged = data(1)[:-1] + b"x"
    log = ranges(write(tmp_path, "t-0", (0, data(0) + damaged + data(2))))["t-0"]
    assert log.end == 1
    assert "checksum" in log.defect


def test_checkpoint_of_the_cleaner_excuses_gaps_below_it(tmp_path: Path) -> None:
    directory = write(tmp_path, "t-0", (0, data(0) + data(4) + data(9)))
    (directory / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    log = ranges(directory)["t-0"]
    assert (log.compacted_below, log.first_gap, log.last_gap) == (5, 1, 3)
    without = ranges(write(tmp_path / "other", "t-0", (0, data(0) + data(4))))["t-0"]
    assert (without.compacted_below, without.first_gap) == (0, -1)


def test_mark_of_odradek_excuses_all_gaps(tmp_path: Path) -> None:
    directory = write(tmp_path, "t-0", (0, data(0) + data(4)))
    (directory / "t-0" / "odradek.gaps").touch()
    assert ranges(directory)["t-0"].compacted_below == EVERYWHERE


def test_directory_without_partitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryUnusable, match=r"has no partitions.*log\.dirs"):
        LogDirectories([tmp_path]).partitions()
    with pytest.raises(LogDirectoryUnusable, match="cannot be read"):
        LogDirectories([tmp_path / "missing"]).partitions()
