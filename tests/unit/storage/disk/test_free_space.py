"""The reserve of free space: data logs stop to grow before the file system is full."""

from __future__ import annotations

import pytest

from odradek.storage.disk.free_space import CHECK_BYTES, RESERVED_BYTES_MAX, FreeSpace
from odradek.storage.disk.port import ResourcesExhausted

TOTAL = 1 << 40
MIB = 1 << 20


class FileSystem:
    def __init__(self, free: int, total: int = TOTAL) -> None:
        self.free, self.total = free, total
        self.reads = 0
        self.space = FreeSpace(self.read, reserves=True)

    def read(self, path: str) -> tuple[int, int]:
        self.reads += 1
        return self.free, self.total

    def append(self, size: int) -> None:
        self.space.check("/data/t-0", size)
        self.free -= size


def test_appends_leave_the_reserve_free() -> None:
    disk = FileSystem(RESERVED_BYTES_MAX + 20 * MIB)
    appended = 0
    with pytest.raises(ResourcesExhausted):
        while True:
            disk.append(MIB)
            appended += MIB
    assert (appended, disk.free) == (20 * MIB, RESERVED_BYTES_MAX)
    assert disk.space.is_full("/data")
    assert disk.reads <= 20 * MIB // CHECK_BYTES + 3


def test_append_is_accepted_as_soon_as_space_is_free() -> None:
    disk = FileSystem(RESERVED_BYTES_MAX)
    with pytest.raises(ResourcesExhausted):
        disk.append(1)
    disk.free += 1
    disk.append(1)


def test_small_file_system_keeps_a_part_free() -> None:
    disk = FileSystem(60 * MIB, total=1_000 * MIB)
    disk.append(10 * MIB)
    with pytest.raises(ResourcesExhausted):
        disk.append(1)


def test_full_disk_counts_as_full_until_twice_the_reserve_is_free() -> None:
    disk = FileSystem(RESERVED_BYTES_MAX + 1)
    assert not disk.space.is_full("/data")
    disk.free -= 1
    assert disk.space.is_full("/data")
    disk.free = 2 * RESERVED_BYTES_MAX
    assert disk.space.is_full("/data")
    disk.free += 1
    assert not disk.space.is_full("/data")


def test_refused_write_counts_as_full_until_the_next_check() -> None:
    disk = FileSystem(TOTAL)
    disk.space.refused()
    assert [disk.space.is_full("/data"), disk.space.is_full("/data")] == [True, False]


def test_tools_reserve_nothing() -> None:
    space = FreeSpace(lambda _path: (0, TOTAL), reserves=False)
    space.check("/data", MIB)
    assert not space.is_full("/data")
