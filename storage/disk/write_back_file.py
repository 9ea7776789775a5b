"""A file that keeps its unsynced bytes in process memory, so that `kill -9` loses what a power failure would lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.invariants.storage import FILE_WITHOUT_HOLES

if TYPE_CHECKING:
    from typing import Self

    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import File


class UnsyncedBytes:
    """Unsynced bytes of one file, from `start` to its end. The bytes below `start` are in the underlying file.

    All `WriteBackFile` objects of the file share this object, which stays when they are closed.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()
        self.changed_from: int | None = None
        """Lowest offset that was changed after the running sync copied the bytes; None if none was."""

    @property
    def end(self) -> int:
        """End of the file."""
        return self.start + len(self.data)

    def note_change(self, offset: int) -> Self:
        self.changed_from = offset if self.changed_from is None else min(self.changed_from, offset)
        return self


class WriteBackFile:
    """Implementation of `odradek.storage.disk.port.File` that writes to the file only in a sync.

    The memory in use grows until the next sync.
    """

    def __init__(self, file: File, unsynced: UnsyncedBytes) -> None:
        self._file = file
        self._unsynced = unsynced

    @property
    def size(self) -> int:
        return self._unsynced.end

    def write(self, offset: int, *buffers: Buffer) -> None:
        unsynced = self._unsynced.note_change(offset)
        if not 0 <= offset <= unsynced.end:
            raise FILE_WITHOUT_HOLES.violated(write_at=offset, size=unsynced.end)
        if offset < unsynced.start:
            unsynced.data[:0] = self._file.read(offset, unsynced.start - offset)
            unsynced.start = offset
        data = b"".join(buffers)
        at = offset - unsynced.start
        unsynced.data[at : at + len(data)] = data

    def read(self, offset: int, size: int) -> Buffer:
        unsynced = self._unsynced
        end = min(offset + size, unsynced.end)
        if offset >= end:
            return b""
        if offset >= unsynced.start:
            return bytes(unsynced.data[offset - unsynced.start : end - unsynced.start])
        below = self._file.read(offset, min(end, unsynced.start) - offset)
        return bytes(below) + bytes(unsynced.data[: max(0, end - unsynced.start)])

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        if (
            offset >= self._unsynced.start
            or self._file.read_warm(offset, min(size, self._unsynced.start - offset)) is not None
        ):
            return self.read(offset, size)
        return None

    async def read_cold(self, offset: int, size: int) -> Buffer:
        below = self._unsynced.start - offset
        if below > 0:
            # This loads the synced part into the page cache. The unsynced bytes may change meanwhile.
            await self._file.read_cold(offset, min(size, below))
        return self.read(offset, size)

    async def sync(self) -> None:
        end = self._write_unsynced()
        await self._file.sync()
        self._drop_durable(end)

    def sync_now(self) -> None:
        end = self._write_unsynced()
        self._file.sync_now()
        self._drop_durable(end)

    def _write_unsynced(self) -> int:
        """Write the unsynced bytes to the underlying file and return the end of the file."""
        unsynced = self._unsynced
        if self._file.size > unsynced.end:  # truncated during an earlier sync
            self._file.truncate(unsynced.end)
        self._file.write(unsynced.start, unsynced.data)
        unsynced.changed_from = None
        return unsynced.end

    def _drop_durable(self, synced_end: int) -> None:
        """Drop the bytes that are now durable, except those that were written or truncated during the sync."""
        unsynced = self._unsynced
        durable_end = synced_end if unsynced.changed_from is None else min(synced_end, unsynced.changed_from)
        if durable_end > unsynced.start:
            del unsynced.data[: durable_end - unsynced.start]
            unsynced.start = durable_end

    def truncate(self, size: int) -> None:
        unsynced = self._unsynced.note_change(size)
        if not 0 <= size <= unsynced.end:
            raise FILE_WITHOUT_HOLES.violated(truncate_to=size, size=unsynced.end)
        del unsynced.data[max(0, size - unsynced.start) :]
        unsynced.start = min(unsynced.start, size)
        if size < self._file.size:
            self._file.truncate(size)

    def close(self) -> None:
        self._file.close()
