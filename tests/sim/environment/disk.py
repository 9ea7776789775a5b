"""The disk port over a `Medium`: seeded latency, drawn I/O errors, and the end of a process in the middle of its work.

One `SimDisk` belongs to one life of a node. A crash detaches it: every later call fails, so that a `finally` of the dead
node cannot write what a power cut would not have let it write.
"""

import asyncio
import posixpath
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.protocol.schema import Buffer
from odradek.storage.disk.port import DirectoryLocked
from tests.sim.environment.medium import Directory, Inode, Medium, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.environment.loop import SimLoop

T = TypeVar("T")
FREE_BYTES: Final = 1 << 40
EIO, ENOSPC = 5, 28
SWAP_ENDING: Final = ".log.swap"


class Detached(OSError):
    """The node that calls is dead."""


class DiskWatcher(Protocol):
    """Told of what reaches the page cache, and of what has become durable."""

    def on_write(self, path: str, offset: int, data: bytes) -> None: ...
    def on_truncate(self, path: str, size: int) -> None: ...
    def on_removed(self, path: str) -> None:
        """The file or directory has no such name any more."""

    def on_renamed(self, old: str, new: str) -> None: ...
    def on_synced(self, path: str, size: int) -> None: ...


@dataclass(slots=True)
class DiskLatency:
    """Seconds; now and then a sync is much slower."""

    sync_seconds_max: float = 0.004
    slow_sync_probability: float = 0.02
    slow_sync_seconds: float = 0.15
    cold_read_seconds_max: float = 0.003
    cold_probability: float = 0.05


@dataclass(slots=True)
class DiskFault:
    """Strikes the next operation of its kind on a path that contains `match`: write, sync; `errno` is what is raised."""

    operation: str
    match: str
    errno: int
    struck: bool = False


class SimLock:
    def __init__(self, locks: dict[str, None], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.pop(self._path, None)


class SimDisk:
    """See `odradek.storage.disk.port.Disk`."""

    def __init__(self, medium: Medium, loop: "SimLoop", rng: Random, *, name: str, latency: DiskLatency) -> None:
        self.medium = medium
        self.loop = loop
        self.rng = rng
        self.name = name
        self.latency = latency
        self.faults: list[DiskFault] = []
        self.detached = False
        self.watchers: list[DiskWatcher] = []
        self.operations = 0
        self.die_at_operation: int | None = None
        self.die_in_swap: int | None = None
        """So many operations after the next segment that compaction begins to swap in."""
        self.on_death: Callable[[], None] | None = None
        self.on_fault: Callable[[], object] | None = None
        self.may_refuse: Callable[[], bool] = lambda: True
        """Asked when a fault is about to strike; one that may not never does."""
        self._locks: dict[str, None] = {}
        self._pending: dict[asyncio.Future[None], None] = {}

    def detach(self) -> None:
        self.detached = True
        for future in list(self._pending):
            if not future.done():
                future.set_exception(Detached(EIO, "the node is dead"))

    def check(self) -> None:
        if self.detached:
            raise Detached(EIO, "the node is dead")

    def changing(self, kind: str, path: str, size: int = 0) -> None:
        """Every change passes here: it is traced, and the process may be drawn to die at it."""
        self.check()
        self.operations += 1
        self.loop.trace.add(self.loop.steps, self.loop.time(), kind, self.name, path, size)

    def dies_here(self) -> bool:
        if self.die_at_operation is not None and self.operations >= self.die_at_operation:
            self.die_at_operation = None
            if self.on_death is not None:
                self.on_death()
            return True
        return False

    def fault(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation == operation and fault.match in path:
                self.faults.remove(fault)
                if not self.may_refuse():
                    return
                fault.struck = True
                if self.on_fault is not None:
                    self.on_fault()
                self.loop.trace.add(self.loop.steps, self.loop.time(), "disk-fault", operation, path, fault.errno)
                raise OSError(fault.errno, "simulated fault", path)

    async def wait(self, seconds: float) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self._pending[future] = None
        timer = self.loop.call_later(seconds, _complete, future)
        try:
            await future
        finally:
            timer.cancel()
            self._pending.pop(future, None)
        self.check()

    def sync_seconds(self) -> float:
        latency = self.latency
        if self.rng.random() < latency.slow_sync_probability:
            return latency.slow_sync_seconds * self.rng.random()
        return latency.sync_seconds_max * self.rng.random()

    # -- names

    def open(self, path: str, *, create: bool) -> "SimFile":
        self.check()
        entry = self.medium.entry(path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(21, "Is a directory", path)
        if entry is None:
            if not create:
                raise FileNotFoundError(2, "No such file or directory", path)
            self.changing("create", path)
            entry = Inode()
            directory, name = self.medium.parent(path)
            directory.change((name, entry))
            if self.dies_here():
                raise Detached(EIO, "the node is dead", path)
        return SimFile(self, path, entry)

    def exists(self, path: str) -> bool:
        self.check()
        return self.medium.entry(path) is not None

    def is_directory(self, path: str) -> bool:
        self.check()
        return isinstance(self.medium.entry(path), Directory)

    def list(self, directory: str) -> list[str]:
        self.check()
        return sorted(self.medium.directory(directory).live)

    def make_directory(self, path: str) -> None:
        self.check()
        here = "/"
        for part in posixpath.normpath(path).strip("/").split("/"):
            parent = self.medium.directory(here)
            here = posixpath.join(here, part)
            if part not in parent.live:
                self.changing("mkdir", here)
                parent.change((part, Directory()))
            elif not isinstance(parent.live[part], Directory):
                raise FileExistsError(17, "File exists", here)

    def remove(self, path: str) -> None:
        self.changing("remove", path)
        if self.medium.entry(path) is None:
            return
        self.medium.file(path)
        directory, name = self.medium.parent(path)
        directory.change((name, None))
        self._tell_removed(path)

    def _tell_removed(self, path: str) -> None:
        for watcher in self.watchers:
            watcher.on_removed(path)

    def rename(self, old: str, new: str) -> None:
        self.changing("rename", f"{old}>{new}")
        entry = self.medium.entry(old)
        if entry is None:
            raise FileNotFoundError(2, "No such file or directory", old)
        if isinstance(entry, Directory) and self.medium.entry(new) is not None:
            raise FileExistsError(17, "File exists", new)
        (source, old_name), (target, new_name) = self.medium.parent(old), self.medium.parent(new)
        if source is target:
            source.change((old_name, None), (new_name, entry))
        else:
            source.change((old_name, None))
            target.change((new_name, entry))
        self._tell_removed(old)
        for watcher in self.watchers:
            watcher.on_renamed(old, new)
        if self.die_in_swap is not None and new.endswith(SWAP_ENDING):
            self.die_at_operation, self.die_in_swap = self.operations + self.die_in_swap, None
        if self.dies_here():
            raise Detached(EIO, "the node is dead", old)

    async def sync_directory(self, path: str) -> None:
        self.changing("syncdir", path)
        if self.dies_here():
            raise Detached(EIO, "the node is dead", path)
        directory = self.medium.directory(path)
        pending, settled = len(directory.pending), directory.settled
        await self.wait(self.sync_seconds())
        directory.make_durable(max(0, pending - (directory.settled - settled)))

    def sync_directory_now(self, path: str) -> None:
        self.changing("syncdir", path)
        self.medium.directory(path).make_durable()

    async def remove_tree(self, path: str) -> None:
        self.changing("rmtree", path)
        await self.wait(self.sync_seconds())
        if self.medium.entry(path) is not None:
            directory, name = self.medium.parent(path)
            directory.change((name, None))

    # -- small files

    def read_file(self, path: str) -> bytes:
        self.check()
        return self.medium.contents(path)

    def replace_file_now(self, path: str, data: bytes) -> None:
        self.changing("atomic", path, len(data))
        self.fault("write", path)
        directory, name = self.medium.parent(path)
        if self.dies_here():
            raise Detached(EIO, "the node is dead", path)
        content = bytearray(data)
        # Its own name alone is made durable: other changes to the directory keep their order before it.
        directory.change((name, Inode(live=content, durable=bytearray(content))))
        directory.make_durable()

    async def replace_file(self, path: str, data: bytes) -> None:
        self.check()
        await self.wait(self.sync_seconds())
        self.replace_file_now(path, data)

    async def in_thread(self, work: "Callable[[], T]") -> T:
        self.check()
        await self.wait(self.rng.random() * self.latency.cold_read_seconds_max)
        return work()

    def lock_directory(self, path: str) -> SimLock:
        self.check()
        if path in self._locks:
            raise DirectoryLocked(11, "the directory is in use", path)
        self._locks[path] = None
        return SimLock(self._locks, path)

    def total_bytes(self, path: str) -> int:
        self.check()
        return FREE_BYTES

    def free_bytes(self, path: str) -> int:
        self.check()
        return FREE_BYTES


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimFile:
    """See `odradek.storage.disk.port.File`."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._failed = False
        self._closed = False

    def _check(self) -> None:
        self._disk.check()
        if self._closed:
            raise ValueError(f"I/O on closed file {self._path}")

    @property
    def size(self) -> int:
        return len(self._inode.live)

    def write(self, offset: int, *buffers: Buffer) -> None:
        self._check()
        data = b"".join(buffers)
        disk = self._disk
        assert 0 <= offset <= self.size, f"{self._path}: a hole before {offset}"
        disk.changing("write", self._path, len(data))
        if self._failed:
            raise OSError(EIO, "the file failed before", self._path)
        try:
            disk.fault("write", self._path)
        except OSError:
            # How much of it reached the file is unknown: any prefix may be there.
            self._put(offset, data[: disk.rng.randrange(len(data) + 1)])
            self._failed = True
            raise
        if disk.dies_here():
            self._put(offset, data[: disk.rng.randrange(len(data) + 1)])
            raise Detached(EIO, "the node is dead", self._path)
        self._put(offset, data)
        for watcher in disk.watchers:
            watcher.on_write(self._path, offset, data)

    def _put(self, offset: int, data: bytes) -> None:
        if data:
            self._inode.change(Operation(offset, data))

    def read(self, offset: int, size: int) -> Buffer:
        self._check()
        return bytes(self._inode.live[offset : offset + size])

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        self._check()
        if self._disk.rng.random() < self._disk.latency.cold_probability:
            return None
        return bytes(self._inode.live[offset : offset + size])

    async def read_cold(self, offset: int, size: int) -> Buffer:
        self._check()
        await self._disk.wait(self._disk.rng.random() * self._disk.latency.cold_read_seconds_max)
        return bytes(self._inode.live[offset : offset + size])

    async def sync(self) -> None:
        self._check()
        disk, inode = self._disk, self._inode
        mark, size = inode.mark(), self.size
        disk.changing("sync", self._path, mark)
        self._sync_fault(mark)
        await disk.wait(disk.sync_seconds())
        if self._failed:
            raise OSError(EIO, "the file failed before", self._path)
        inode.make_durable(mark)
        self._tell_synced(size)
        disk.loop.trace.add(disk.loop.steps, disk.loop.time(), "synced", disk.name, self._path, mark)

    def sync_now(self) -> None:
        self._check()
        mark = self._inode.mark()
        self._disk.changing("sync", self._path, mark)
        self._sync_fault(mark)
        self._inode.make_durable(mark)
        self._tell_synced(self.size)

    def _tell_synced(self, size: int) -> None:
        for watcher in self._disk.watchers:
            watcher.on_synced(self._path, size)

    def _sync_fault(self, mark: int) -> None:
        if self._failed:
            raise OSError(EIO, "the file failed before", self._path)
        try:
            self._disk.fault("sync", self._path)
        except OSError:
            self._failed = True
            self._inode.forget_dirty(mark)
            raise

    def truncate(self, size: int) -> None:
        self._check()
        assert 0 <= size <= self.size
        self._disk.changing("truncate", self._path, size)
        self._inode.change(Operation(size, None))
        for watcher in self._disk.watchers:
            watcher.on_truncate(self._path, size)

    def close(self) -> None:
        self._closed = True
