"""Walking over the batches of a log file, for start-up, recovery and inspection. May wait for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.disk.port import File

SCAN_BYTES = 1024 * 1024
"""Bytes read at a time in a walk over a whole log file."""
BATCH_BYTES_MAX = 256 * 1024 * 1024  # none larger is ever appended, so a larger length in a file is damage


class Scan:
    """The whole batches of `file` in [start, end). Ends early where the bytes make no sense: `stopped` then says why.

    `position` is where the walk stands: behind the last batch that was yielded and taken.
    """

    def __init__(self, file: File, start: int, end: int) -> None:
        self._file = file
        self._end = end
        self.position = start
        self.stopped = ""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes of the batch). The checksum is not looked at."""
        window, window_at = memoryview(b""), self.position
        while (left := self._end - self.position) > 0:
            at = self.position - window_at
            if len(window) - at < min(HEADER_BYTES, left):
                window, window_at, at = self._read(min(SCAN_BYTES, left)), self.position, 0
            try:
                header = read_header(window, at)
            except Malformed as error:
                self.stopped = str(error)
                return
            if header.size > min(left, BATCH_BYTES_MAX):
                self.stopped = f"a batch of {header.size} bytes does not fit the {left} that are left"
                return
            if header.size > len(window) - at:
                window, window_at, at = self._read(min(max(SCAN_BYTES, header.size), left)), self.position, 0
                if len(window) < header.size:
                    self.stopped = "the file is shorter than its size"
                    return
            yield self.position, header, window[at : at + header.size]
            self.position += header.size

    def _read(self, size: int) -> memoryview:
        return memoryview(self._file.read(self.position, size))
