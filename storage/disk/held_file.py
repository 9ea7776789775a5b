"""A file whose un-synced bytes live in this process only, so that killing it loses what a power cut would lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from odradek.storage.disk.port import Buffer, File


class HeldTail:
    """The bytes from `start` to the end of one file; those below are on the disk. It outlives close and re-open."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()
        self.changed_from: int | None = None  # lowest offset changed since the running sync took its copy

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def note_change(self, offset: int) -> Self:
        self.changed_from = offset if self.changed_from is None else min(self.changed_from, offset)
        return self


class HeldFile:
    """`odradek.storage.disk.port.File` over another one; memory grows with what has not been synced."""

    def __init__(self, file: File, tail: HeldTail) -> None:
        self._file = file
        self._tail = tail

    @property
    def size(self) -> int:
        return self._tail.end

    def write(self, offset: int, *buffers: Buffer) -> None:
        tail = self._tail.note_change(offset)
        assert 0 <= offset <= tail.end, f"write at {offset} would leave a hole behind {tail.end}"
        if offset < tail.start:
            tail.data[:0] = self._file.read(offset, tail.start - offset)
            tail.start = offset
        data = b"".join(buffers)
        at = offset - tail.start
        tail.data[at : at + len(data)] = data

    def read(self, offset: int, size: int) -> Buffer:
        tail = self._tail
        end = min(offset + size, tail.end)
        if offset >= end:
            return b""
        if offset >= tail.start:
            return bytes(tail.data[offset - tail.start : end - tail.start])
        below = self._file.read(offset, min(end, tail.start) - offset)
        return bytes(below) + bytes(tail.data[: max(0, end - tail.start)])

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        if offset >= self._tail.start or self._file.read_warm(offset, min(size, self._tail.start - offset)) is not None:
            return self.read(offset, size)
        return None

    async def read_cold(self, offset: int, size: int) -> Buffer:
        below = self._tail.start - offset
        if below > 0:
            await self._file.read_cold(offset, min(size, below))  # makes it warm; the tail may change meanwhile
        return self.read(offset, size)

    async def sync(self) -> None:
        end = self._write_out()
        await self._file.sync()
        self._settle(end)

    def sync_now(self) -> None:
        end = self._write_out()
        self._file.sync_now()
        self._settle(end)

    def _write_out(self) -> int:
        tail = self._tail
        if self._file.size > tail.end:  # cut while an earlier sync was under way
            self._file.truncate(tail.end)
        self._file.write(tail.start, tail.data)
        tail.changed_from = None
        return tail.end

    def _settle(self, synced_end: int) -> None:
        """Let go of what is durable now, less what was written or cut while the sync was under way."""
        tail = self._tail
        durable_end = synced_end if tail.changed_from is None else min(synced_end, tail.changed_from)
        if durable_end > tail.start:
            del tail.data[: durable_end - tail.start]
            tail.start = durable_end

    def truncate(self, size: int) -> None:
        tail = self._tail.note_change(size)
        assert 0 <= size <= tail.end, f"truncation to {size} would lengthen {tail.end}"
        del tail.data[max(0, size - tail.start) :]
        tail.start = min(tail.start, size)
        if size < self._file.size:
            self._file.truncate(size)

    def close(self) -> None:
        self._file.close()
