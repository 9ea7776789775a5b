from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.recovery.sweep import sweep
from tests.support.logs import batch

if TYPE_CHECKING:
    from pathlib import Path


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def swept(directory: Path, *files: str) -> list[str]:
    for file in files:
        path = directory / file
        if not path.exists():
            path.write_bytes(b"")
    sweep(OsDisk(), str(directory), OsDisk().list(str(directory)))
    return sorted(path.name for path in directory.iterdir())


def test_deleted_files_are_removed_except_metadata_snapshots(tmp_path: Path) -> None:
    kept = [name(0, ".log"), "partition.metadata", f"{5:020d}-{1:010d}.checkpoint.deleted"]
    assert swept(tmp_path, *kept, name(0, ".index.deleted"), name(9, ".snapshot.deleted")) == sorted(kept)


def test_incomplete_compaction_is_reverted(tmp_path: Path) -> None:
    """`.swap` files at or above the lowest `.cleaned` file belong to an incomplete replacement."""
    files = swept(tmp_path, name(0, ".log"), name(5, ".log"), name(0, ".log.cleaned"), name(5, ".log.swap"))
    assert files == [name(0, ".log"), name(5, ".log")]


def test_complete_swap_is_finished(tmp_path: Path) -> None:
    """The new segment 0 replaces the segments 0 and 5, whose range it covers, but not 20."""
    (tmp_path / name(0, ".log.swap")).write_bytes(batch(3, base_offset=0) + batch(10, base_offset=3))
    (tmp_path / name(5, ".log")).write_bytes(b"old")
    files = swept(
        tmp_path, name(0, ".log"), name(0, ".index"), name(0, ".index.swap"), name(5, ".index"), name(20, ".log")
    )
    assert files == [name(0, ".index"), name(0, ".log"), name(20, ".log")]
    assert (tmp_path / name(0, ".log")).read_bytes().startswith(batch(3, base_offset=0))


def test_indexes_without_a_log_file_are_removed(tmp_path: Path) -> None:
    files = swept(
        tmp_path, name(0, ".log"), name(0, ".index"), name(7, ".index"), name(7, ".txnindex"), name(7, ".snapshot")
    )
    assert files == [name(0, ".index"), name(0, ".log"), name(7, ".snapshot")]
