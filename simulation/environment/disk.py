"""Disk port on a `Medium`: latency and I/O errors generated from the seed, and process crashes within an operation.

One `SimDisk` belongs to one incarnation of a node. A crash detaches it: every later call fails. So a `finally` block of
the ended node cannot write what a real crash would not have written.
"""

import asyncio
import posixpath
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from odradek.protocol.schema import Buffer
from odradek.simulation.environment.io_threads import IoThreads, OwnThreadDisk
from odradek.simulation.environment.medium import Directory, Inode, Medium, Operation
from odradek.storage.disk.os_disk import IO_THREADS_MAX
from odradek.storage.disk.port import RESOURCE_ERRORS, DirectoryLocked, Disk, ResourcesExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.simulation.environment.loop import SimLoop

T = TypeVar("T")
FREE_BYTES: Final = 1 << 40
EIO, ENOSPC = 5, 28
SWAP_ENDING: Final = ".log.swap"
TEMPORARY_SUFFIX: Final = ".tmp"
READ, SYNC, SYNC_DIRECTORY = "read", "sync", "sync_directory"


class Detached(OSError):
    """Raised in a node after its crash: its disk no longer accepts operations."""


class DiskWatcher(Protocol):
    """Receiver of every change of the page cache, and of every flush."""

    def on_write(self, path: str, offset: int, data: bytes) -> None: ...
    def on_truncate(self, path: str, size: int) -> None: ...
    def on_removed(self, path: str) -> None:
        """Handle that the path of a file or directory was removed."""

    def on_renamed(self, old: str, new: str) -> None: ...
    def on_synced(self, path: str, size: int) -> None: ...


@dataclass(slots=True)
class DiskLatency:
    """Latencies in seconds. A small part of the flushes is much slower."""

    sync_seconds_max: float = 0.004
    slow_sync_probability: float = 0.02
    slow_sync_seconds: float = 0.15
    cold_read_seconds_max: float = 0.003
    cold_probability: float = 0.05


@dataclass(slots=True)
class DiskFault:
    """Failure of the next operation on a path that contains `match`, with `errno`.

    The operation is `read` (of a whole file, or a blocking or cold read), `write`, `sync`, `open`, `rename`,
    `sync_directory` or `resources` (`SimDisk.check_resources`, with the path ""). A replacement of a file has all
    operations but `read` and `resources`. The path of `sync_directory` is that of the directory, or of the replaced
    file, and a slash.

    Failures with an errno of RESOURCE_ERRORS are ResourcesExhausted if the operation can be repeated, and
    `SimDisk.may_fail` does not apply to them.
    """

    operation: str
    match: str
    errno: int
    injected: bool = False

    @property
    def loses_cache(self) -> bool:
        """True if unflushed data or names are lost, although they stay visible until the machine restarts."""
        return self.operation == SYNC or (self.operation == SYNC_DIRECTORY and self.errno not in RESOURCE_ERRORS)


class SimLock:
    def __init__(self, locks: dict[str, None], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.pop(self._path, None)


class SimDisk:
    """In-memory implementation of `odradek.storage.disk.port.Disk`."""

    def __init__(self, medium: Medium, loop: "SimLoop", rng: Random, *, name: str, latency: DiskLatency) -> None:
        self.medium = medium
        self.loop = loop
        self.rng = rng
        self.name = name
        self.latency = latency
        self.threads = IoThreads(loop, IO_THREADS_MAX)
        """Threads of all operations except those of views (`with_own_thread`)."""
        self.own_threads: list[IoThreads] = []
        """The thread of each view."""
        self.full = False
        """True if data logs must not grow."""
        self.faults: list[DiskFault] = []
        self.detached = False
        self.watchers: list[DiskWatcher] = []
        self.operations = 0
        self.crash_at_operation: int | None = None
        self.crash_in_swap: int | None = None
        """Number of disk operations after the start of the next segment swap at which the process crashes."""
        self.on_crash: Callable[[], None] | None = None
        self.on_fault: Callable[[DiskFault], object] | None = None
        """Called before an operation fails that cannot be repeated."""
        self.on_error: Callable[[str, str, int], object] | None = None
        """Called with operation, path and errno before any operation fails."""
        self.on_refused: Callable[[], object] | None = None
        """Called when a full disk refuses an append."""
        self.may_fail: Callable[[], bool] = lambda: True
        """Called before a fault is injected. If it returns False, the fault is dropped."""
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
        """Trace a change and count it. Every change of the disk passes here."""
        self.check()
        self.operations += 1
        self.loop.trace.add(self.loop.steps, self.loop.time(), kind, self.name, path, size)

    def crashes_here(self) -> bool:
        if self.crash_at_operation is not None and self.operations >= self.crash_at_operation:
            self.crash_at_operation = None
            if self.on_crash is not None:
                self.on_crash()
            return True
        return False

    def fault(self, operation: str, path: str, *, can_be_repeated: bool = True) -> None:
        """Raise the error of the first fault for this operation, if any.

        A flush of an open file cannot be repeated: a second one could succeed although the data is lost.
        """
        for fault in self.faults:
            if fault.operation == operation and fault.match in path:
                self.faults.remove(fault)
                if fault.errno in RESOURCE_ERRORS and can_be_repeated:
                    fault.injected = True
                    self._note_error(fault, path)
                    self.loop.trace.add(self.loop.steps, self.loop.time(), "no-resources", operation, path, fault.errno)
                    raise ResourcesExhausted(fault.errno, "simulated fault", path)
                if not self.may_fail():
                    return
                fault.injected = True
                self._note_error(fault, path)
                if self.on_fault is not None:
                    self.on_fault(fault)
                self.loop.trace.add(self.loop.steps, self.loop.time(), "disk-fault", operation, path, fault.errno)
                raise OSError(fault.errno, "simulated fault", path)

    def _note_error(self, fault: DiskFault, path: str) -> None:
        if self.on_error is not None:
            self.on_error(fault.operation, path, fault.errno)

    def with_own_thread(self) -> Disk:
        threads = IoThreads(self.loop, 1)
        self.own_threads.append(threads)
        return cast("Disk", OwnThreadDisk(self, threads))

    async def wait(self, seconds: float, threads: IoThreads) -> None:
        """Wait for the end of an operation that needs one of the threads for `seconds`."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._pending[future] = None
        timer = self.loop.call_later(threads.occupy(seconds), _complete, future)
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

    # ---- names ------------------------------------------------------------------------------------------------------

    def check_resources(self) -> None:
        self.check()
        self.fault("resources", "")

    def open(self, path: str, *, create: bool) -> "SimFile":
        return self.open_with(self.threads, path, create=create)

    def open_with(self, threads: IoThreads, path: str, *, create: bool) -> "SimFile":
        self.check()
        self.fault("open", path)
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
            if self.crashes_here():
                raise Detached(EIO, "the node is dead", path)
        return SimFile(self, path, entry, threads)

    def exists(self, path: str) -> bool:
        self.check()
        return self.medium.entry(path) is not None

    def is_directory(self, path: str) -> bool:
        self.check()
        return isinstance(self.medium.entry(path), Directory)

    def list(self, directory: str) -> list[str]:
        self.check()
        return sorted(self.medium.directory(directory).live)

    def list_directories(self, directory: str) -> "Sequence[str]":
        self.check()
        entries = self.medium.directory(directory).live
        return sorted(name for name, entry in entries.items() if isinstance(entry, Directory))

    def restrict_access(self, path: str) -> int:
        self.check()
        return 0  # the simulated medium has no permissions

    def make_directory(self, path: str) -> None:
        self.check()
        path_so_far = "/"
        for part in posixpath.normpath(path).strip("/").split("/"):
            parent = self.medium.directory(path_so_far)
            path_so_far = posixpath.join(path_so_far, part)
            if part not in parent.live:
                self.changing("mkdir", path_so_far)
                parent.change((part, Directory()))
            elif not isinstance(parent.live[part], Directory):
                raise FileExistsError(17, "File exists", path_so_far)

    def remove(self, path: str) -> None:
        self.changing("remove", path)
        if self.medium.entry(path) is None:
            return
        self.medium.file(path)
        directory, name = self.medium.parent(path)
        directory.change((name, None))
        self._notify_removed(path)

    def _notify_removed(self, path: str) -> None:
        for watcher in self.watchers:
            watcher.on_removed(path)

    def rename(self, old: str, new: str) -> None:
        self.changing("rename", f"{old}>{new}")
        self.fault("rename", old)
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
        self._notify_removed(old)
        for watcher in self.watchers:
            watcher.on_renamed(old, new)
        if self.crash_in_swap is not None and new.endswith(SWAP_ENDING):
            self.crash_at_operation, self.crash_in_swap = self.operations + self.crash_in_swap, None
        if self.crashes_here():
            raise Detached(EIO, "the node is dead", old)

    async def sync_directory(self, path: str) -> None:
        await self.sync_directory_with(self.threads, path)

    async def sync_directory_with(self, threads: IoThreads, path: str) -> None:
        self.changing("syncdir", path)
        if self.crashes_here():
            raise Detached(EIO, "the node is dead", path)
        directory = self.medium.directory(path)
        self._directory_fault(directory, f"{path}/")
        pending, settled = len(directory.pending), directory.settled
        await self.wait(self.sync_seconds(), threads)
        directory.make_durable(max(0, pending - (directory.settled - settled)))

    def sync_directory_now(self, path: str) -> None:
        self.changing("syncdir", path)
        directory = self.medium.directory(path)
        self._directory_fault(directory, f"{path}/")
        directory.make_durable()

    def _directory_fault(self, directory: Directory, path: str) -> None:
        """Let the sync of the directory fail if there is such a fault. All changes of its names stay visible.

        If the directory cannot be opened, the next sync makes them durable. After an I/O error, they are lost.
        """
        try:
            self.fault(SYNC_DIRECTORY, path)
        except ResourcesExhausted:
            raise
        except OSError:
            directory.forget_pending(self.rng)
            raise

    async def remove_tree(self, path: str) -> None:
        self.changing("rmtree", path)
        await self.wait(self.sync_seconds(), self.threads)
        if self.medium.entry(path) is not None:
            directory, name = self.medium.parent(path)
            directory.change((name, None))

    # ---- small files ------------------------------------------------------------------------------------------------

    def read_file(self, path: str) -> bytes:
        self.check()
        self.fault(READ, path, can_be_repeated=False)
        return self.medium.contents(path)

    def replace_file_now(self, path: str, data: bytes) -> None:
        """Replace a file in the five steps of `OsDisk`, each of which can fail. They count as one change of the disk.

        | failed step            | visible afterwards                                                         |
        |------------------------|----------------------------------------------------------------------------|
        | open, write, sync      | the old content: the temporary file was removed                            |
        | rename                 | the old content, and a temporary file                                      |
        | sync of the directory  | the new content; a power failure may bring back the old content            |
        """
        self.changing("atomic", path, len(data))
        temporary = f"{path}{TEMPORARY_SUFFIX}"
        directory, name = self.medium.parent(path)
        remove_temporary: tuple[tuple[str, None], ...] = ()
        if f"{name}{TEMPORARY_SUFFIX}" in directory.live:  # of an earlier replacement, whose rename failed
            remove_temporary = ((f"{name}{TEMPORARY_SUFFIX}", None),)
        self.fault("open", temporary)
        try:
            self.fault("write", temporary)
            self.fault(SYNC, temporary)
        except OSError:
            if remove_temporary:
                directory.change(*remove_temporary)
            raise
        if self.crashes_here():
            raise Detached(EIO, "the node is dead", path)
        new = Inode(live=bytearray(data), durable=bytearray(data))
        try:
            self.fault("rename", temporary)
        except OSError:
            directory.change((f"{name}{TEMPORARY_SUFFIX}", new))
            raise
        directory.change(*remove_temporary, (name, new))
        self._directory_fault(directory, f"{path}/")
        directory.make_durable()

    async def replace_file(self, path: str, data: bytes) -> None:
        await self.replace_file_with(self.threads, path, data)

    async def replace_file_with(self, threads: IoThreads, path: str, data: bytes) -> None:
        self.check()
        await self.wait(self.sync_seconds(), threads)
        self.replace_file_now(path, data)

    def sync_file_system_now(self, path: str) -> bool:
        self.changing("syncfs", path)
        self._sync_tree(path)
        return True

    def _sync_tree(self, path: str) -> None:
        directory = self.medium.directory(path)
        for name, entry in directory.live.items():
            if isinstance(entry, Directory):
                self._sync_tree(f"{path}/{name}")
                continue
            if entry.unsynced:
                self.sync_fault(f"{path}/{name}", entry)
            entry.make_durable(entry.mark())
            for watcher in self.watchers:
                watcher.on_synced(f"{path}/{name}", len(entry.live))
        directory.make_durable()

    def sync_fault(self, path: str, inode: Inode) -> None:
        """Let the flush of a file fail if there is such a fault. Then its unflushed operations are lost."""
        try:
            self.fault(SYNC, path, can_be_repeated=False)
        except OSError:
            inode.forget_dirty(inode.mark())
            raise

    def run_all_now(self, works: "Sequence[Callable[[], None]]") -> "Sequence[OSError | None]":
        return [_failure_of(work) for work in works]

    async def in_thread(self, work: "Callable[[], T]") -> T:
        self.check()
        await self.wait(self.rng.random() * self.latency.cold_read_seconds_max, self.threads)
        return work()

    def lock_directory(self, path: str) -> SimLock:
        self.check()
        if path in self._locks:
            raise DirectoryLocked(11, "the directory is in use", path)
        self._locks[path] = None
        return SimLock(self._locks, path)

    def check_space(self, path: str, size: int) -> None:
        self.check()
        if self.full:
            if self.on_refused is not None:
                self.on_refused()
            raise ResourcesExhausted(ENOSPC, "simulated full disk", path)

    def is_full(self, path: str) -> bool:
        self.check()
        return self.full

    def total_bytes(self, path: str) -> int:
        self.check()
        return FREE_BYTES

    def free_bytes(self, path: str) -> int:
        self.check()
        return FREE_BYTES


def _failure_of(work: "Callable[[], None]") -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    return None


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimFile:
    """In-memory implementation of `odradek.storage.disk.port.File`."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, threads: IoThreads) -> None:
        self._disk = disk
        self._threads = threads
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
        except ResourcesExhausted:
            self._put(offset, data[: disk.rng.randrange(len(data) + 1)])
            raise
        except OSError:
            # After an I/O error the file may contain any prefix of the data.
            self._put(offset, data[: disk.rng.randrange(len(data) + 1)])
            self._failed = True
            raise
        if disk.crashes_here():
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
        self._disk.fault(READ, self._path, can_be_repeated=False)
        return bytes(self._inode.live[offset : offset + size])

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        self._check()
        if self._disk.rng.random() < self._disk.latency.cold_probability:
            return None
        return bytes(self._inode.live[offset : offset + size])

    async def read_cold(self, offset: int, size: int) -> Buffer:
        self._check()
        await self._disk.wait(self._disk.rng.random() * self._disk.latency.cold_read_seconds_max, self._threads)
        self._disk.fault(READ, self._path, can_be_repeated=False)
        return bytes(self._inode.live[offset : offset + size])

    async def sync(self) -> None:
        self._check()
        disk, inode = self._disk, self._inode
        mark, size = inode.mark(), self.size
        disk.changing("sync", self._path, mark)
        self._sync_fault()
        await disk.wait(disk.sync_seconds(), self._threads)
        if self._failed:
            raise OSError(EIO, "the file failed before", self._path)
        inode.make_durable(mark)
        self._notify_synced(size)
        disk.loop.trace.add(disk.loop.steps, disk.loop.time(), "synced", disk.name, self._path, mark)

    def sync_now(self) -> None:
        self._check()
        mark = self._inode.mark()
        self._disk.changing("sync", self._path, mark)
        self._sync_fault()
        self._inode.make_durable(mark)
        self._notify_synced(self.size)

    def _notify_synced(self, size: int) -> None:
        for watcher in self._disk.watchers:
            watcher.on_synced(self._path, size)

    def _sync_fault(self) -> None:
        if self._failed:
            raise OSError(EIO, "the file failed before", self._path)
        try:
            self._disk.sync_fault(self._path, self._inode)
        except OSError:
            self._failed = True
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
