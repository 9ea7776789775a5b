"""Iterate over the record batches of a log file, for start-up, recovery and tools. Reads block on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.disk.port import File

SCAN_BYTES = 1024 * 1024
"""Bytes per read during the scan of a log file."""
BATCH_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes per batch. No larger batch is appended, so a larger length in a log file is damage."""


class Scan:
    """Iterator over the complete batches in the bytes [start, end) of a log file.

    The iteration stops at the first bytes that are not a batch; `defect` then describes them, and is '' otherwise.
    `position` is the byte after the last batch that the caller has processed.
    """

    def __init__(self, file: File, start: int, end: int) -> None:
        self._file = file
        self._end = end
        self.position = start
        self.defect = ""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, bytes) of each batch. Checksums are not verified."""
        window, window_start = memoryview(b""), self.position
        while (remaining := self._end - self.position) > 0:
            at = self.position - window_start
            if len(window) - at < min(HEADER_BYTES, remaining):
                window, window_start, at = self._read(min(SCAN_BYTES, remaining)), self.position, 0
            try:
                header = read_header(window, at)
            except Malformed as error:
                self.defect = str(error)
                return
            if header.size > min(remaining, BATCH_BYTES_MAX):
                self.defect = f"the batch length is {header.size} bytes, but {remaining} bytes remain"
                return
            if header.size > len(window) - at:
                window, window_start, at = self._read(min(max(SCAN_BYTES, header.size), remaining)), self.position, 0
                if len(window) < header.size:
                    self.defect = "the file is shorter than its reported size"
                    return
            yield self.position, header, window[at : at + header.size]
            self.position += header.size

    def _read(self, size: int) -> memoryview:
        return memoryview(self._file.read(self.position, size))
