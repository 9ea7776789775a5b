"""The disk port: logs, indexes and checkpoints access storage only through these classes.

`odradek.storage.disk.os_disk.OsDisk` is the implementation of brokers and tools. The simulator has one with data loss,
torn writes and I/O errors. Paths are absolute strings. Every failure is an `OSError`.

Durability
----------
* `File.write`, `File.truncate`: later reads see the change immediately, and it survives a process failure. It survives
  a power failure only after a `File.sync` of that file has returned. A power failure may keep any subset of the
  unsynced writes, keep a prefix of a write, or leave zeros. It does not change bytes that were synced and not
  overwritten since.
* `File.sync`: when it returns, all earlier writes to the file are durable, also those through other file objects. Index
  files and snapshots are written, closed, and synced later through another file object. If `sync` raises, the unsynced
  data may be lost, and the file refuses all later writes and syncs. A repeated sync could succeed although the data is
  lost: the kernel reports a failed write-back once, and then discards the data.
* Names (`open(create=True)`, `make_directory`, `rename`, `remove`): durable after `sync_directory` of the parent.
* `replace_file`, `replace_file_now`: durable when they return. After a crash the file has the old content or the new
  content, never a mixture.
* A failed `write` may have written any part of its bytes. `size` includes the bytes that are known to be written.

Threads
-------
Operations in threads share a small pool per disk, and wait in its queue while all its threads are busy. A slow disk
needs 100 ms and more per flush. The log of Raft has a view with a thread of its own (`Disk.with_own_thread`), so that
neither a vote nor a commit of metadata waits for flushes and reads of other logs. The checkpoints have another one,
because Raft writes a checkpoint before it truncates its log.

Which functions block
---------------------
A *blocking* function waits for the disk in the calling thread. The event loop must not call it while the broker serves
requests.

| functions                                                   | use on the event loop                                  |
|-------------------------------------------------------------|--------------------------------------------------------|
| `File.write`                                                | yes: it writes to the page cache, and blocks only when |
|                                                             | the kernel throttles writers                           |
| `File.read_warm`                                            | yes: it never waits for the disk                       |
| `File.truncate`, `File.close`, `File.size`                  | yes                                                    |
| `Disk.open`, `exists`, `list`, `make_directory`, `rename`,  | yes, for rare events (the roll of a segment, a         |
| `remove`, `free_bytes`, `total_bytes`, `is_directory`       | deletion, a new partition): directory entries are      |
|                                                             | usually cached                                         |
| `File.read_cold`, `File.sync`, `Disk.sync_directory`,       | yes: they are awaited, and do their work in a thread   |
| `Disk.remove_tree`, `Disk.replace_file`, `Disk.in_thread`   |                                                        |
| `File.read`, `File.sync_now`, `Disk.read_file`,             | no, they block: for start-up, recovery, shutdown, and  |
| `Disk.replace_file_now`, `Disk.lock_directory`,             | command-line tools                                     |
| `Disk.restrict_access`, `Disk.sync_directory_now`,          |                                                        |
| `Disk.run_all_now`, `Disk.sync_file_system_now`             |                                                        |

Files are not memory-mapped: access to a truncated or failing file would terminate the process with SIGBUS
(docs/decisions/0003-no-mmap.md).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.protocol.schema import Buffer

T = TypeVar("T")


RESOURCE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})
"""Error numbers of the kernel for too few file descriptors, too little memory, or no space on the disk."""

LOCK_FILE = ".lock"
"""Name of the lock file of a data directory, as in Kafka."""


class ResourcesExhausted(OSError):
    """No file descriptor, memory or disk space was left for an operation, which had no effect. The disk is intact.

    The operation succeeds when they are free again.
    """


class DirectoryLocked(OSError):
    """Another process, or another node in this process, holds the lock of the directory."""


class Lock(Protocol):
    """Exclusive lock of a directory. The end of the process releases it, too."""

    def release(self) -> None:
        """Release the lock. A second call has no effect."""


class File(Protocol):
    """Open file. Offsets and sizes are in bytes. There is no file position."""

    @property
    def size(self) -> int:
        """Size of the file, including unsynced bytes. It needs no system call."""

    def write(self, offset: int, *buffers: Buffer) -> None:
        """Write all buffers, one after the other, from `offset` on.

        `offset` must be in [0, size], so a file never has holes. The caller may reuse the buffers afterwards.

        Raises:
            OSError: An I/O error, or an earlier failure of the file. Any part of the bytes may be written.
                ResourcesExhausted: no memory or space; any part of the bytes may be written, and the file can be used
                further.
        """

    def read(self, offset: int, size: int) -> Buffer:
        """Return up to `size` bytes from `offset` on, fewer only at the end of the file. The call blocks."""

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        """Return the same bytes as `read` if all of them are in the page cache, else None."""

    async def read_cold(self, offset: int, size: int) -> Buffer:
        """Return the same bytes as `read`, which runs in a thread.

        `close` waits for the end of the read. A `truncate` during the read may shorten the result.
        """

    async def sync(self) -> None:
        """Make all earlier writes durable (`fdatasync` in a thread).

        Raises:
            OSError: The unsynced data may be lost. All later writes and syncs of this file raise OSError, too.
        """

    def sync_now(self) -> None:
        """Make all earlier writes durable. The call blocks. Raise OSError as `sync` does."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, which must not be more than it has."""

    def close(self) -> None:
        """Close the file after the end of its operations in threads. Unsynced bytes stay unsynced. Idempotent."""


class Disk(Protocol):
    """The file systems of a node: names, directories and small files.

    Functions that open a file raise ResourcesExhausted if no descriptor or no memory is left.
    """

    def check_resources(self) -> None:
        """Raise ResourcesExhausted if descriptors are too few for an operation that opens several files.

        A caller that can postpone the operation calls this function before it changes anything.
        """

    def open(self, path: str, *, create: bool) -> File:
        """Open a file for reading and writing. With `create`, create an empty file if it is absent.

        Raises:
            FileNotFoundError: The file is absent and `create` is False, or its directory is absent.
        """

    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory with that path. Raise OSError if the disk cannot be read."""

    def is_directory(self, path: str) -> bool:
        """Return True if the path is that of a directory."""

    def list(self, directory: str) -> list[str]:
        """Return the names of the entries of the directory, sorted."""

    def list_directories(self, directory: str) -> Sequence[str]:
        """Return the names of the directories in the directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its absent parents. An existing directory is no error."""

    def restrict_access(self, path: str) -> int:
        """Remove the permissions of other users from a directory and its content.

        The call blocks. Return the number of changed entries.
        """

    def remove(self, path: str) -> None:
        """Remove a file. An absent file is no error. An open file can be read and written until it is closed."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, which replaces `new`, or a directory, for which `new` must not exist. Open files stay open."""

    async def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""

    def sync_directory_now(self, path: str) -> None:
        """Make the names in the directory durable. The call blocks."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with its content. An absent directory is no error."""

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file. The call blocks."""

    def replace_file_now(self, path: str, data: bytes) -> None:
        """Replace a small file atomically by a synced temporary file, and sync the directory. The call blocks."""

    async def replace_file(self, path: str, data: bytes) -> None:
        """Replace a small file atomically, as `replace_file_now` does, in a thread."""

    def sync_file_system_now(self, path: str) -> bool:
        """Make all earlier changes of files and names on the file system of the directory `path` durable. It blocks.

        Return False, and do nothing, if the system does not report all failed writes this way.

        Raises:
            OSError: Since the directory was locked, data of the file system was lost.
        """

    def run_all_now(self, works: Sequence[Callable[[], None]]) -> Sequence[OSError | None]:
        """Run all functions in parallel threads, and return the OSError that each has raised. The call blocks.

        The functions must not access shared state. A clean shutdown syncs the logs this way.
        """

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result.

        It must not access shared state. Compaction runs codecs this way.
        """

    def with_own_thread(self) -> Disk:
        """Return a view of this disk whose operations, also those of files that it opens, use one thread of their own.

        The operations of the view do not wait for a thread that other operations of the disk occupy.
        """

    def lock_directory(self, path: str) -> Lock:
        """Lock the file `.lock` of the directory for this node.

        A Kafka broker with the same directory is excluded, too.

        Raises:
            DirectoryLocked: Another node holds the lock.
        """

    def check_space(self, path: str, size: int) -> None:
        """Raise ResourcesExhausted if the log in directory `path` must not grow by `size` bytes.

        A reserve of the file system stays free for the metadata log, checkpoints and deletions. A view with a thread of
        its own, which the metadata log uses, has no such limit.
        """

    def is_full(self, path: str) -> bool:
        """Return True if logs below `path` must not grow, or if a write was refused since the last call."""

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system of `path` in bytes."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes that an unprivileged process may still write to the file system of `path`."""
