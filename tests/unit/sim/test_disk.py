"""The simulated disk: contents after a process kill, a power cut and a failed fsync."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from errno import EIO, EMFILE, ENOSPC
from functools import partial
from pathlib import Path
from random import Random
from stat import S_ISDIR
from typing import Any, TypeVar

import pytest

from odradek.simulation.environment.disk import Detached, DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium, flip_rebuildable
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import Disk, File

T = TypeVar("T")


class World:
    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.loop = SimLoop(self.rng)
        self.medium = Medium()

    def disk(self) -> SimDisk:
        disk = SimDisk(self.medium, self.loop, self.rng, name="n", latency=DiskLatency(cold_probability=0.5))
        typed: Disk = disk  # the port, checked by mypy
        assert typed is disk
        return disk

    def run(self, action: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            return await action()

        return self.loop.run_until_complete(main())


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def open_file(disk: SimDisk, path: str) -> File:
    return disk.open(path, create=True)


def test_reads_see_writes_immediately_and_cold_reads_take_time(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data/t-0")
    file = open_file(disk, "/data/t-0/a.log")
    file.write(0, b"hello ", memoryview(b"world"))
    assert (file.size, bytes(file.read(6, 50))) == (11, b"world")
    before = world.loop.time()
    assert bytes(world.run(lambda: file.read_cold(0, 5))) == b"hello"
    assert world.loop.time() > before
    warm = [file.read_warm(0, 5) for _ in range(50)]
    assert None in warm
    assert b"hello" in warm


def test_killed_process_loses_no_data(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    open_file(disk, "/data/a").write(0, b"never synced")
    disk.detach()
    assert world.disk().read_file("/data/a") == b"never synced"


def test_detached_disk_refuses_all_operations(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    file = open_file(disk, "/data/a")

    async def sync_during_detach() -> None:
        world.loop.call_soon(disk.detach)
        await file.sync()

    with pytest.raises(Detached):
        world.run(sync_during_detach)
    for action in (
        lambda: file.write(0, b"x"),
        lambda: disk.replace_file_now("/data/b", b"x"),
        lambda: disk.list("/data"),
    ):
        with pytest.raises(Detached):
            action()


def test_power_loss_keeps_synced_bytes_and_keeps_drops_or_tears_others() -> None:
    outcomes = set()
    for seed in range(60):
        world = World(seed)
        disk = world.disk()
        disk.make_directory("/data")
        file = open_file(disk, "/data/a")
        file.write(0, b"s" * 1000)
        world.run(file.sync)
        world.run(lambda disk=disk: disk.sync_directory("/data"))  # type: ignore[misc]
        world.run(lambda disk=disk: disk.sync_directory("/"))  # type: ignore[misc]
        file.write(1000, b"u" * 2000)
        disk.detach()
        world.medium.lose_power(world.rng)
        contents = world.disk().read_file("/data/a")
        assert contents[:1000] == b"s" * 1000
        tail = contents[1000:]
        assert set(tail) <= set(b"u\0")
        kind = "dropped" if not tail else "kept" if tail == b"u" * 2000 else "torn"
        outcomes.add(kind)
        world.loop.close()
    assert outcomes == {"dropped", "kept", "torn"}


def test_file_name_is_durable_only_after_directory_sync() -> None:
    survived = set()
    for seed in range(30):
        world = World(seed)
        disk = world.disk()
        disk.make_directory("/data")
        world.run(lambda disk=disk: disk.sync_directory("/"))  # type: ignore[misc]
        file = open_file(disk, "/data/a")
        file.write(0, b"x")
        world.run(file.sync)
        disk.detach()
        world.medium.lose_power(world.rng)
        survived.add(world.disk().exists("/data/a"))
        world.loop.close()
    assert survived == {True, False}


def test_rename_is_kept_or_lost_atomically() -> None:
    outcomes = set()
    for seed in range(30):
        world = World(seed)
        disk = world.disk()
        disk.make_directory("/data")
        disk.replace_file_now("/data/a", b"x")
        world.run(lambda disk=disk: disk.sync_directory("/"))  # type: ignore[misc]
        disk.rename("/data/a", "/data/b")
        disk.detach()
        world.medium.lose_power(world.rng)
        outcomes.add(tuple(world.disk().list("/data")))
        world.loop.close()
    assert outcomes == {("a",), ("b",)}


def test_replace_file_leaves_the_new_contents(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    world.run(lambda: disk.sync_directory("/"))
    disk.replace_file_now("/data/a", b"old")
    disk.replace_file_now("/data/a", b"new")
    disk.detach()
    world.medium.lose_power(world.rng)
    assert world.disk().read_file("/data/a") == b"new"


STEPS = [("open", EIO), ("open", EMFILE), ("write", EIO), ("write", ENOSPC), ("sync", EIO), ("sync", ENOSPC),
         ("rename", EIO), ("sync_directory", EIO), ("sync_directory", EMFILE)]  # fmt: skip


def _fail_system_call(monkeypatch: pytest.MonkeyPatch, step: str, error_number: int) -> None:
    """Let one system call of `OsDisk.replace_file_now` fail. The directory is opened and synced last."""

    def failing(original: Callable[..., Any], applies: Callable[..., bool]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if applies(*arguments):
                raise OSError(error_number, "simulated fault")
            return original(*arguments)

        return call

    def is_directory(descriptor: int) -> bool:
        return S_ISDIR(os.fstat(descriptor).st_mode)

    name, applies = {
        "open": ("open", lambda _path, flags, *_: bool(flags & os.O_CREAT)),
        "write": ("write", lambda *_: True),
        "sync": ("fsync", lambda descriptor: not is_directory(descriptor)),
        "rename": ("rename", lambda *_: True),
        "sync_directory": ("fsync", is_directory),
    }[step]
    if step == "sync_directory" and error_number == EMFILE:
        name, applies = "open", lambda _path, flags, *_: bool(flags & os.O_DIRECTORY)
    monkeypatch.setattr(os, name, failing(getattr(os, name), applies))


@pytest.mark.parametrize("leftover", [False, True], ids=["", "temporary file of an earlier failure"])
@pytest.mark.parametrize(("step", "error_number"), STEPS)
def test_failed_replacement_has_the_outcome_of_the_real_disk(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error_number: int, *, leftover: bool
) -> None:
    simulated, real = world.disk(), OsDisk()
    simulated.make_directory(str(tmp_path))
    outcomes = []
    for disk in (simulated, real):
        path = f"{tmp_path}/f"
        disk.replace_file_now(path, b"old")
        if leftover:
            disk.replace_file_now(f"{path}.tmp", b"left")
        with monkeypatch.context() as patch:
            if disk is simulated:
                simulated.faults.append(DiskFault(step, "/f", error_number))
            else:
                _fail_system_call(patch, step, error_number)
            with pytest.raises(OSError, match=r"simulated|sync failed") as failure:
                disk.replace_file_now(path, b"new")
        contents = {name: disk.read_file(f"{tmp_path}/{name}") for name in disk.list(str(tmp_path))}
        outcomes.append((type(failure.value), contents))
        disk.replace_file_now(path, b"next")
        assert (disk.list(str(tmp_path)), disk.read_file(path)) == (["f"], b"next")
    real.close()
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("replace", [True, False], ids=["replacement", "rename"])
@pytest.mark.parametrize("error_number", [EIO, EMFILE])
def test_failed_directory_sync_leaves_the_new_name_visible_and_not_durable(*, error_number: int, replace: bool) -> None:
    """After an I/O error, even a later sync may leave the change out: the kernel reports a failed write once."""
    outcomes = set()
    for seed in range(40):
        world = World(seed)
        disk = world.disk()
        disk.make_directory("/data")
        disk.sync_directory_now("/")
        disk.replace_file_now("/data/f", b"old")
        disk.faults.append(DiskFault("sync_directory", "/data/", error_number))
        with pytest.raises(OSError, match="simulated"):
            if replace:
                disk.replace_file_now("/data/f", b"new")
            else:
                disk.rename("/data/f", "/data/g")
                world.run(partial(disk.sync_directory, "/data"))
        assert (disk.list("/data"), disk.read_file("/data/f" if replace else "/data/g")) == (
            (["f"], b"new") if replace else (["g"], b"old")
        )
        if seed % 2:
            disk.sync_directory_now("/data")
        world.medium.lose_power(world.rng)
        content = world.disk().read_file("/data/f") if world.medium.entry("/data/f") is not None else b"renamed"
        outcomes.add((bool(seed % 2), content))
        world.loop.close()
    new = b"new" if replace else b"renamed"
    complete = {(False, b"old"), (False, new), (True, b"old"), (True, new)}
    assert outcomes == complete - ({(True, b"old")} if error_number == EMFILE else set())


def test_failed_file_system_sync_loses_data_of_a_file(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    for name in "ab":
        open_file(disk, f"/data/{name}").write(0, b"written")
    disk.sync_directory_now("/data")
    disk.sync_directory_now("/")
    disk.faults.append(DiskFault("sync", "/data/a", 5))
    with pytest.raises(OSError, match="simulated"):
        disk.sync_file_system_now("/data")
    assert disk.sync_file_system_now("/data"), "the kernel reports a failed write once"
    world.medium.lose_power(world.rng)
    assert [world.disk().read_file(f"/data/{name}") for name in "ab"] == [b"", b"written"]


def test_failed_sync_loses_data_and_later_operations_fail(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    world.run(lambda: disk.sync_directory("/"))
    file = open_file(disk, "/data/a")
    world.run(lambda: disk.sync_directory("/data"))
    file.write(0, b"doomed")
    disk.faults.append(DiskFault("sync", "/a", 5))
    with pytest.raises(OSError, match="simulated"):
        world.run(file.sync)
    with pytest.raises(OSError, match="failed before"):
        world.run(file.sync)
    with pytest.raises(OSError, match="failed before"):
        file.write(6, b"more")
    disk.detach()
    world.medium.lose_power(world.rng)
    assert world.disk().read_file("/data/a") == b""


def test_failed_write_leaves_a_prefix(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    file = open_file(disk, "/data/a")
    disk.faults.append(DiskFault("write", "/a", 28))
    with pytest.raises(OSError, match="simulated"):
        file.write(0, b"0123456789")
    assert b"0123456789".startswith(disk.read_file("/data/a"))


def test_process_can_crash_at_a_given_operation(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    file = open_file(disk, "/data/a")
    crashed_at: list[int] = []

    def crash() -> None:
        crashed_at.append(disk.operations)
        disk.detach()

    disk.on_crash = crash
    disk.crash_at_operation = disk.operations + 2
    file.write(0, b"first")
    with pytest.raises(Detached):
        file.write(5, b"second")
    assert crashed_at == [disk.operations]
    contents = world.disk().read_file("/data/a")
    assert contents.startswith(b"first")
    assert b"firstsecond".startswith(contents)


def test_sync_covers_only_earlier_writes(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    file = open_file(disk, "/data/a")
    file.write(0, b"before")

    async def overlap() -> None:
        syncing = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        file.write(6, b"after")
        await syncing

    world.run(overlap)
    inode = world.medium.file("/data/a")
    assert (bytes(inode.durable), bytes(inode.live)) == (b"before", b"beforeafter")


def test_operations_share_a_bounded_pool_of_threads(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    shared, own = open_file(disk, "/data/a"), disk.with_own_thread().open("/data/b", create=True)
    disk.threads.occupy_all(5.0)

    async def sync_both() -> tuple[float, float]:
        began = world.loop.time()
        waiting = asyncio.ensure_future(shared.sync())
        await own.sync()
        own_ended = world.loop.time()
        await waiting
        return own_ended - began, world.loop.time() - began

    own_seconds, shared_seconds = world.run(sync_both)
    assert own_seconds < 1.0
    assert shared_seconds >= 5.0


def test_operation_that_waits_for_a_slow_thread_is_counted(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data")
    shared, own = open_file(disk, "/data/a"), disk.with_own_thread().open("/data/b", create=True)
    delayed: list[str] = []
    (own_thread,) = disk.own_threads
    disk.threads.on_delayed = lambda: delayed.append("shared")
    own_thread.on_delayed = lambda: delayed.append("own")
    world.run(own.sync)
    own_thread.occupy_all(5.0)
    world.run(shared.sync)
    assert delayed == []
    began = world.loop.time()
    world.run(own.sync)
    assert delayed == ["own"]
    assert world.loop.time() - began > 1.0


def test_bits_flip_only_in_files_that_one_replica_can_rebuild(world: World) -> None:
    disk = world.disk()
    disk.make_directory("/data/t-0")
    names = ("0.log", "0.index", "5.log", "5.index", "5.snapshot")
    for name in names:
        open_file(disk, f"/data/t-0/{name}").write(0, b"\0" * 8)
    flipped = {flip_rebuildable(world.medium, "/data", world.rng) for _ in range(40)}
    assert flipped == {"/data/t-0/5.index", "/data/t-0/5.snapshot"}
    assert all(disk.read_file(f"/data/t-0/{name}") == b"\0" * 8 for name in ("0.log", "0.index", "5.log"))
