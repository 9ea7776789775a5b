"""The disk: the one port through which logs, indexes and checkpoints touch storage.

Production is `odradek.storage.disk.os_disk.OsDisk`; the simulator has its own implementation with losses, torn writes and I/O errors.
Paths are absolute strings. Every failure is an `OSError` (a directory that is in use: `DirectoryLocked`).

What survives what
------------------
* `File.write`, `File.truncate`: seen by every later read of this disk at once. They survive the death of the process, and
  survive the loss of power only after `File.sync` of that file has returned. A power loss may keep any subset of the
  un-synced writes, any prefix of one, or leave zeros where data should be; bytes that were synced before and not
  overwritten since stay as they are.
* `File.sync`: everything written to the file before the call, through whichever handle, is durable when it returns. Index
  files and snapshots are opened, written and closed, and synced through another handle later. After it has raised, un-synced
  data must be taken for lost, and the file refuses every later write and sync: calling again and then trusting the
  answer is what has cost others their data (the kernel reports a failed write-back once, then forgets it).
* Names (`open(create=True)`, `make_directory`, `rename`, `remove`): durable after `sync_directory` of the parent.
* `write_atomic`, `replace_file`: after a crash the old content or the new one, never a mixture; durable on return.
* A failed `write` may leave any part of its bytes behind. `size` then counts what is known to have been written.

What may run on the event loop
------------------------------
| call                                                        | on the loop                                             |
|-------------------------------------------------------------|---------------------------------------------------------|
| `File.write`                                                | yes: goes to the page cache, blocks only when the       |
|                                                             | kernel throttles writers                                |
| `File.read_warm`                                            | yes: never waits for the device                         |
| `File.truncate`, `File.close`, `File.size`                  | yes                                                     |
| `Disk.open`, `exists`, `list`, `make_directory`, `rename`,  | yes, where they are rare (a roll, a deletion, the       |
| `remove`, `free_bytes`, `total_bytes`, `is_directory`       | creation of a partition): they work on cached entries   |
| `File.read_cold`, `File.sync`, `Disk.sync_directory`,       | awaited: the work is done in a thread                   |
| `Disk.remove_tree`, `Disk.replace_file`, `Disk.in_thread`   |                                                         |
| `File.read`, `File.sync_now`, `Disk.read_file`,             | no: start-up, recovery, close-down, and command line    |
| `Disk.write_atomic`, `Disk.lock_directory`,                 | tools                                                   |
| `Disk.sync_directory_now`                                   |                                                         |

There is no mmap: a truncated or failing file would end the process with SIGBUS (docs/decisions/0003-no-mmap.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Buffer

T = TypeVar("T")


class DirectoryLocked(OSError):
    """Another process, or another node of this process, works in the directory."""


class Lock(Protocol):
    """An exclusive claim on a directory; it also ends with the process."""

    def release(self) -> None:
        """Give the directory back; a second call does nothing."""


class File(Protocol):
    """An open file. Offsets and sizes are bytes; there is no file position."""

    @property
    def size(self) -> int:
        """Bytes in the file, un-synced ones included; no system call."""

    def write(self, offset: int, *buffers: Buffer) -> None:
        """Write all buffers one after the other from `offset` on (0 <= offset <= size: there are never holes).

        The buffers may be reused as soon as it returns.

        Raises:
            OSError: no space, I/O error, or the file failed before; how much of the bytes is there is unknown.
        """

    def read(self, offset: int, size: int) -> Buffer:
        """Up to `size` bytes from `offset` on, fewer only at the end of the file. May wait for the device."""

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        """As `read`, but None when part of it is not in memory and the device would have to be asked."""

    async def read_cold(self, offset: int, size: int) -> Buffer:
        """As `read`, in a thread. A `close` in the meantime takes effect after it; a `truncate` may make it shorter."""

    async def sync(self) -> None:
        """Make everything written before this call durable (fdatasync in a thread).

        Raises:
            OSError: un-synced data must be taken for lost; every later write and sync of this file raises too.
        """

    def sync_now(self) -> None:
        """As `sync`, waiting on the spot; for close-down and checkpoints."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes (0 <= size <= current size)."""

    def close(self) -> None:
        """Release the file; operations in threads are finished first, un-synced bytes stay un-synced. Idempotent."""


class Disk(Protocol):
    """Names, directories and small files."""

    def open(self, path: str, *, create: bool) -> File:
        """Open for reading and writing; with `create` an absent file is made, empty.

        Raises:
            FileNotFoundError: absent and not `create`, or its directory is absent.
        """

    def exists(self, path: str) -> bool:
        """Whether a file or a directory has that name."""

    def is_directory(self, path: str) -> bool:
        """Whether the name is that of a directory."""

    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make the directory and absent parents; one that exists is left alone."""

    def remove(self, path: str) -> None:
        """Remove a file; an absent one is no error. A file still open can be read and written until closed."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file (replacing `new`) or a directory (`new` must not exist); open files stay open."""

    async def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""

    def sync_directory_now(self, path: str) -> None:
        """As `sync_directory`, waiting on the spot."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below; an absent one is no error."""

    def read_file(self, path: str) -> bytes:
        """The whole content of a small file."""

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file: temporary file, fsync, rename, fsync of the directory. Waits on the spot."""

    async def replace_file(self, path: str, data: bytes) -> None:
        """As `write_atomic`, in a thread."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of `work`, which takes long and touches nothing that anybody else does: codecs, for the cleaner."""

    def lock_directory(self, path: str) -> Lock:
        """Claim the directory for this node by its file `.lock`, in the way Kafka's own processes understand.

        Raises:
            DirectoryLocked: somebody else has it.
        """

    def total_bytes(self, path: str) -> int:
        """The size of the file system of `path`."""

    def free_bytes(self, path: str) -> int:
        """Bytes that a process without privileges may still write to the file system of `path`."""
