"""Implementation of the disk port for Linux. Warm reads and writes run on the event loop, blocking calls in threads."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from odradek.invariants.storage import FILE_WITHOUT_HOLES
from odradek.private_files import FILE_MODE, make_private_directory, restrict
from odradek.storage.disk.descriptors import DescriptorReserve
from odradek.storage.disk.file_system_sync import sync_file_system
from odradek.storage.disk.free_space import FreeSpace
from odradek.storage.disk.port import LOCK_FILE, RESOURCE_ERRORS, DirectoryLocked, File, ResourcesExhausted
from odradek.storage.disk.read_buffers import ReadBuffers
from odradek.storage.disk.write_back_file import UnsyncedBytes, WriteBackFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from odradek.protocol.schema import Buffer

T = TypeVar("T")

IO_THREADS_MAX = 4
"""Threads per disk for cold reads, syncs and compression, without those of its views. Further operations wait in a
queue."""
SYNC_THREADS_MAX = 16
"""Threads for the syncs of a clean shutdown. Syncs that wait at the same time share one commit of the journal."""
READ_BYTES = 64 * 1024
"""Bytes per system call when a small file is read."""
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
BUFFERS_PER_CALL_MAX = 1024  # IOV_MAX of Linux
RESOURCE_WAIT_S = 10.0
"""Maximum seconds that an `async` function waits for a free descriptor or for memory."""
RESOURCE_RETRY_S = 0.1
"""Seconds between two attempts of that wait."""


class OpenFiles:
    """Number of open files of a disk, with those of its views. Files are opened and closed in threads, too."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()

    def add(self, change: int) -> None:
        """Add `change` to the number."""
        with self._lock:
            self.count += change


class OsFile:
    """Open file. The object counts the size of the file, so an append needs one system call."""

    def __init__(self, descriptor: int, disk: OsDisk) -> None:
        self._descriptor = descriptor
        self._pool = disk.pool
        self._read_buffers = disk.read_buffers
        self._opened = disk.opened
        self._space = disk.space
        self._opened.add(1)
        self._size = os.fstat(descriptor).st_size
        self._thread_operations = 0
        """Operations of this file that run in threads now."""
        self._closed = False
        self._failure: OSError | None = None

    @property
    def size(self) -> int:
        return self._size

    def write(self, offset: int, *buffers: Buffer) -> None:
        if not 0 <= offset <= self._size:
            raise FILE_WITHOUT_HOLES.violated(write_at=offset, size=self._size)
        if self._closed or self._failure is not None:
            self._check()
        size = sum(map(len, buffers))
        try:
            written = os.pwritev(self._descriptor, buffers[:BUFFERS_PER_CALL_MAX], offset)
            if written != size:
                self._size = max(self._size, offset + written)
                self._write_rest(offset, b"".join(buffers), written)
        except OSError as error:
            if error.errno in NO_SPACE:
                self._space.refused()
            if error.errno in RESOURCE_ERRORS:
                raise ResourcesExhausted(error.errno, error.strerror) from error
            raise
        self._size = max(self._size, offset + size)

    def _write_rest(self, offset: int, data: bytes, done: int) -> None:
        """Write the bytes of `data` from `done` on, after a short write.

        Reasons for a short write: the disk is nearly full, a signal, or more than BUFFERS_PER_CALL_MAX buffers.
        """
        view = memoryview(data)
        while done < len(view):
            written = os.pwrite(self._descriptor, view[done:], offset + done)
            if written == 0:
                raise OSError(errno.EIO, "the kernel wrote no byte: check the file system")
            done += written
            self._size = max(self._size, offset + done)

    def read(self, offset: int, size: int) -> Buffer:
        self._check_open()
        pieces: list[bytes] = []
        while size > 0:
            piece = os.pread(self._descriptor, size, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        self._check_open()
        size = max(0, min(size, self._size - offset))
        data = self._read_buffers.take(size)
        try:
            read_bytes = os.preadv(self._descriptor, [data], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            # The file system does not support RWF_NOWAIT. All reads are cold then, so the event loop never waits.
            if error.errno in {errno.EOPNOTSUPP, errno.EINVAL}:
                return None
            raise
        return data if read_bytes == size else None

    async def read_cold(self, offset: int, size: int) -> Buffer:
        return await self._in_thread(lambda: self.read(offset, size))

    async def sync(self) -> None:
        await self._in_thread(self.sync_now)

    def sync_now(self) -> None:
        self._check()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._failure = error
            raise

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise FILE_WITHOUT_HOLES.violated(truncate_to=size, size=self._size)
        self._check()
        os.ftruncate(self._descriptor, size)
        self._size = size

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()

    def _release(self) -> None:
        """Close the descriptor when no thread uses it. Otherwise another file could get its number meanwhile."""
        if self._closed and self._thread_operations == 0:
            os.close(self._descriptor)
            self._opened.add(-1)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._check_open()
        self._thread_operations += 1
        job = self._pool.submit(work)
        loop = asyncio.get_running_loop()
        job.add_done_callback(lambda _: _call_soon(loop, self._thread_done))
        return await asyncio.wrap_future(job)

    def _thread_done(self) -> None:
        self._thread_operations -= 1
        self._release()

    def _check_open(self) -> None:
        if self._closed and self._thread_operations == 0:
            raise OSError(errno.EBADF, "the file is closed")

    def _check(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise OSError(errno.EIO, f"an earlier sync of this file failed: {self._failure}")


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed, so no task can use the file any more
        loop.call_soon_threadsafe(callback)


class OsLock:
    """Lock of a data directory: a descriptor of its lock file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class OsDisk:
    """The file systems of this machine.

    With `hold_unsynced`, the process keeps written bytes in memory until they are synced. Then `kill -9` loses what a
    power failure would lose, which tests with real processes need. Changes of names take effect immediately.

    `reserved_descriptors` is the size of the `DescriptorReserve`. With `reserves_space`, data logs leave some space of
    the file system free.
    """

    def __init__(
        self, *, hold_unsynced: bool = False, reserved_descriptors: int = 0, reserves_space: bool = False
    ) -> None:
        self.pool = ThreadPoolExecutor(IO_THREADS_MAX, thread_name_prefix="disk")
        self._pools = [self.pool]
        """The pools of this disk and of all its views."""
        self.read_buffers = ReadBuffers()
        self.opened = OpenFiles()
        self.space = FreeSpace(_free_and_total, reserves=reserves_space)
        self._may_use_reserve = False
        self._reserve = DescriptorReserve(reserved_descriptors, lambda: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        self._locks: dict[str, OsLock] = {}
        self._hold_unsynced = hold_unsynced
        self._unsynced: dict[tuple[int, int], UnsyncedBytes] = {}

    @property
    def open_files(self) -> int:
        """Files that are open now, without those that a function opens and closes."""
        return self.opened.count

    def with_own_thread(self) -> Self:
        view = copy.copy(self)  # shares everything but the pool
        view._may_use_reserve = True
        view.pool = ThreadPoolExecutor(1, thread_name_prefix="disk-own")
        self._pools.append(view.pool)
        return view

    def check_resources(self) -> None:
        self._reserve.check()

    def open(self, path: str, *, create: bool) -> File:
        descriptor = self._reserve.run(lambda: self._open_new(path)) if create else -1
        if descriptor < 0:
            descriptor = self._reserve.run(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
        file = OsFile(descriptor, self)
        if not self._hold_unsynced:
            return file
        return WriteBackFile(file, self._unsynced.setdefault(_identity(os.fstat(descriptor)), UnsyncedBytes(file.size)))

    def _open_new(self, path: str) -> int:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        except FileExistsError:
            return -1
        self._unsynced.pop(_identity(os.fstat(descriptor)), None)
        return descriptor

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, directory: str) -> list[str]:
        return sorted(self._reserve.run(lambda: os.listdir(directory)))

    def list_directories(self, directory: str) -> Sequence[str]:
        with self._reserve.run(lambda: os.scandir(directory)) as entries:
            return sorted(entry.name for entry in entries if _is_directory(entry))

    def make_directory(self, path: str) -> None:
        make_private_directory(path)

    def restrict_access(self, path: str) -> int:
        return restrict(path)

    def remove(self, path: str) -> None:
        self._forget(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        self._forget(new)
        os.rename(old, new)

    def _forget(self, path: str) -> None:
        """Drop the unsynced bytes of a file that loses its name. Open file objects keep them."""
        if self._hold_unsynced:
            with contextlib.suppress(FileNotFoundError):
                self._unsynced.pop(_identity(os.stat(path)), None)

    def _forget_tree(self, path: str) -> None:
        for entry in Path(path).rglob("*"):
            self._forget(str(entry))

    async def sync_directory(self, path: str) -> None:
        await self._repeated(lambda: _sync_directory(path))

    def sync_directory_now(self, path: str) -> None:
        self._reserve.run(lambda: _sync_directory(path))

    async def remove_tree(self, path: str) -> None:
        if self._hold_unsynced:
            self._forget_tree(path)
        await self._repeated(lambda: _remove_tree(path))

    def read_file(self, path: str) -> bytes:
        if not self._hold_unsynced:
            return self._reserve.run(lambda: _read_file(path))
        file = self.open(path, create=False)
        try:
            return bytes(file.read(0, file.size))
        finally:
            file.close()

    def replace_file_now(self, path: str, data: bytes) -> None:
        self._forget(path)
        self._reserve.run(lambda: _replace_file(path, data))

    async def replace_file(self, path: str, data: bytes) -> None:
        self._forget(path)
        await self._repeated(lambda: _replace_file(path, data))

    async def _repeated(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. While descriptors or memory are missing, repeat it for up to RESOURCE_WAIT_S."""
        for _ in range(int(RESOURCE_WAIT_S / RESOURCE_RETRY_S)):
            with contextlib.suppress(ResourcesExhausted):
                return await self.in_thread(lambda: self._reserve.run(work))
            await asyncio.sleep(RESOURCE_RETRY_S)
        return await self.in_thread(lambda: self._reserve.run(work))

    def sync_file_system_now(self, path: str) -> bool:
        lock = self._locks.get(path)
        if self._hold_unsynced or lock is None or lock.descriptor is None:
            return False
        return sync_file_system(lock.descriptor)

    def run_all_now(self, works: Sequence[Callable[[], None]]) -> Sequence[OSError | None]:
        failures: list[OSError | None] = [None] * len(works)
        remaining = iter(enumerate(works))

        def run_remaining() -> None:
            for number, work in remaining:
                failures[number] = _failure_of(work)

        threads = min(SYNC_THREADS_MAX, len(works))
        with ThreadPoolExecutor(max(threads, 1), thread_name_prefix="sync") as pool:
            for job in [pool.submit(run_remaining) for _ in range(threads)]:
                job.result()
        return failures

    def lock_directory(self, path: str) -> OsLock:
        lock_path = f"{path}/{LOCK_FILE}"
        descriptor = self._reserve.run(lambda: os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        try:
            # `flock` excludes another node of this process, and `lockf` a Kafka broker: Java's `tryLock` uses it.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryLocked(errno.EAGAIN, "the directory is in use by another process", path) from error
        lock = self._locks[path] = OsLock(descriptor)
        return lock

    def check_space(self, path: str, size: int) -> None:
        if not self._may_use_reserve:
            self.space.check(path, size)

    def is_full(self, path: str) -> bool:
        return self.space.is_full(path)

    def total_bytes(self, path: str) -> int:
        return _free_and_total(path)[1]

    def free_bytes(self, path: str) -> int:
        return _free_and_total(path)[0]

    def close(self) -> None:
        """Wait for the end of all operations in threads, also of views, and stop the threads."""
        for pool in self._pools:
            pool.shutdown(wait=True)
        self._reserve.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)


def _failure_of(work: Callable[[], None]) -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    return None


def _free_and_total(path: str) -> tuple[int, int]:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Return False for an entry that cannot be examined, such as a symbolic link to itself, as `os.path.isdir` does."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _read_file(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(descriptor, READ_BYTES)]
        while len(pieces[-1]) == READ_BYTES:
            pieces.append(os.read(descriptor, READ_BYTES))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # A repeated sync could succeed although the data is lost, so this is no ResourcesExhausted.
        raise OSError(errno.EIO, f"the sync failed: {error.strerror}", path) from error
    finally:
        os.close(descriptor)


def _remove_tree(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _replace_file(path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    _sync_directory(os.path.dirname(path) or ".")
