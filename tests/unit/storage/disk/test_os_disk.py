from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest

from odradek.storage.disk.os_disk import BUFFERS_PER_CALL_MAX, OsDisk
from odradek.storage.disk.port import DirectoryLocked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[False, True], ids=["plain", "hold-unsynced"])
def disk(request: pytest.FixtureRequest) -> Iterator[OsDisk]:
    disk = OsDisk(hold_unsynced=request.param)
    yield disk
    disk.close()


@pytest.fixture
def holding() -> Iterator[OsDisk]:
    disk = OsDisk(hold_unsynced=True)
    yield disk
    disk.close()


def test_written_bytes_are_read(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"abc", memoryview(b"def"))
    file.write(2, b"XY")
    assert (file.size, bytes(file.read(0, 99)), bytes(file.read(3, 2))) == (6, b"abXYef", b"Ye")
    assert bytes(file.read_warm(1, 3) or b"") == b"bXY"
    assert bytes(file.read(6, 1)) == b""
    file.close()


def test_more_buffers_than_one_system_call_accepts(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, *[bytes([n % 251]) for n in range(BUFFERS_PER_CALL_MAX + 500)])
    assert bytes(file.read(0, 9999)) == bytes(n % 251 for n in range(BUFFERS_PER_CALL_MAX + 500))
    file.close()


def test_append_after_a_truncation_follows_the_truncated_end(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"0123456789")
    file.sync_now()
    file.write(10, b"abc")
    file.truncate(4)
    file.write(4, b"Z")
    assert (file.size, bytes(file.read(0, 99))) == (5, b"0123Z")
    file.close()
    assert disk.read_file(f"{tmp_path}/a") == b"0123Z"


def test_file_that_cannot_be_examined_is_not_absent(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without `quorum-state` has not voted. One whose disk fails to read the name of the file may have."""
    assert not disk.exists(f"{tmp_path}/a")
    assert not disk.exists(f"{tmp_path}/a/b")
    (tmp_path / "a").touch()
    assert disk.exists(f"{tmp_path}/a")
    assert not disk.exists(f"{tmp_path}/a/b")

    def fail(path: str) -> os.stat_result:
        raise OSError(errno.EIO, "injected", path)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="injected"):
        patched.setattr(os, "stat", fail)
        disk.exists(f"{tmp_path}/a")


async def test_cold_read_and_sync_run_in_threads_and_outlive_close(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"x" * 100_000)
    sync = asyncio.ensure_future(file.sync())
    read = asyncio.ensure_future(file.read_cold(0, 100_000))
    await asyncio.sleep(0)
    file.close()
    assert len(await read) == 100_000
    await sync


def test_opening_an_absent_file_fails_and_removing_it_does_not(disk: OsDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/absent", create=False)
    disk.remove(f"{tmp_path}/absent")


def test_directory_is_made_with_its_parents_and_listed_in_order(disk: OsDisk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/d/e")
    disk.make_directory(f"{tmp_path}/d/e")
    assert disk.is_directory(f"{tmp_path}/d")
    (tmp_path / "d" / "loop").symlink_to("loop")
    disk.replace_file_now(f"{tmp_path}/d/z", b"1")
    disk.replace_file_now(f"{tmp_path}/d/b", b"2")
    assert disk.list(f"{tmp_path}/d") == ["b", "e", "loop", "z"]
    assert disk.list_directories(f"{tmp_path}/d") == ["e"]
    assert disk.free_bytes(str(tmp_path)) > 0


async def test_file_is_replaced_atomically(disk: OsDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/c"
    disk.replace_file_now(path, b"a longer first content")
    await disk.replace_file(path, b"second")
    assert disk.read_file(path) == b"second"
    assert disk.list(str(tmp_path)) == ["c"]
    await disk.sync_directory(str(tmp_path))


async def test_removed_directory_name_can_be_reused(disk: OsDisk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/t")
    disk.open(f"{tmp_path}/t/f", create=True).write(0, b"old")
    await disk.remove_tree(f"{tmp_path}/t")
    await disk.remove_tree(f"{tmp_path}/t")
    disk.make_directory(f"{tmp_path}/t")
    assert disk.open(f"{tmp_path}/t/f", create=True).size == 0


def test_open_files_follow_a_rename(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    file.write(0, b"after")
    assert disk.read_file(f"{tmp_path}/b") == b"after"


def test_directory_has_one_owner(disk: OsDisk, tmp_path: Path) -> None:
    lock = disk.lock_directory(str(tmp_path))
    other = OsDisk()
    with pytest.raises(DirectoryLocked):
        other.lock_directory(str(tmp_path))
    lock.release()
    lock.release()
    other.lock_directory(str(tmp_path)).release()
    other.close()


def test_unsynced_bytes_are_not_on_the_disk(holding: OsDisk, tmp_path: Path) -> None:
    """A read without the disk port returns the bytes that survive kill -9."""
    path = tmp_path / "a"
    file = holding.open(str(path), create=True)
    file.write(0, b"durable")
    file.sync_now()
    file.write(7, b"-lost")
    assert path.read_bytes() == b"durable"
    assert bytes(file.read(0, 99)) == b"durable-lost"
    file.close()
    assert holding.read_file(str(path)) == b"durable-lost"
    assert OsDisk().read_file(str(path)) == b"durable"


async def test_bytes_written_during_a_sync_are_held(holding: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = holding.open(str(path), create=True)
    file.write(0, b"first")
    sync = asyncio.ensure_future(file.sync())
    await asyncio.sleep(0)
    file.write(5, b"second")
    await sync
    assert path.read_bytes() == b"first"
    await file.sync()
    assert path.read_bytes() == b"firstsecond"


async def test_truncation_during_a_sync_is_kept(holding: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = holding.open(str(path), create=True)
    file.write(0, b"0123456789")
    sync = asyncio.ensure_future(file.sync())
    await asyncio.sleep(0)
    file.truncate(4)
    file.write(4, b"ab")
    await sync
    assert bytes(file.read(0, 99)) == b"0123ab"
    file.sync_now()
    assert path.read_bytes() == b"0123ab"
