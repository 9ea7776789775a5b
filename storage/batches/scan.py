"""Iterate over the record batches of a log file, for start-up, recovery and tools. Reads block on the disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.protocol.batch import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, MAGIC_AT, BatchHeader, read_header, verify_crc
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.disk.port import File

SCAN_BYTES = 1024 * 1024
"""Bytes per read during the scan of a log file."""
BATCH_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes per batch. No larger batch is appended, so a larger length in a log file is damage."""


OFFSET_BYTES = 8
OFFSETS_AHEAD_MAX = 2**31 - 1
"""Maximum distance between two offsets of one segment."""


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
        self.incomplete = False
        """True if the defect is the end of the bytes within a batch."""

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
                self.incomplete = remaining < HEADER_BYTES
                return
            if header.size > min(remaining, BATCH_BYTES_MAX):
                self.incomplete = header.size > remaining
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


def contains_batch(file: File, start: int, end: int, next_offset: int) -> bool:
    """Return True if a batch with a correct checksum is in the bytes [start, end) of a log file, at any position.

    Its offsets are at or above `next_offset`. The cost is one pass over the bytes.
    """
    position = start
    while end - position >= HEADER_BYTES:
        window = bytes(file.read(position, min(SCAN_BYTES, end - position)))
        at = window.find(MAGIC, MAGIC_AT)
        while at != -1:
            base_offset = int.from_bytes(window[at - MAGIC_AT : at - MAGIC_AT + OFFSET_BYTES], "big")
            if 0 <= base_offset - next_offset <= OFFSETS_AHEAD_MAX and _is_batch(file, position + at - MAGIC_AT, end):
                return True
            at = window.find(MAGIC, at + 1)
        if position + len(window) >= end:
            return False
        position += len(window) - MAGIC_AT
    return False


def _is_batch(file: File, begin: int, end: int) -> bool:
    if end - begin < HEADER_BYTES:
        return False
    try:
        header = read_header(file.read(begin, HEADER_BYTES))
    except Malformed:
        return False
    if header.size > min(end - begin, BATCH_BYTES_MAX):
        return False
    return verify_crc(file.read(begin, header.size), 0, header)


def is_whole_batch(file: File, start: int, end: int) -> bool:
    """Return True if the bytes [start, end) of a log file are one batch whose length field is damaged.

    The checksum does not cover the length. It fits all bytes up to `end`, so the batch was written completely.
    """
    if not HEADER_BYTES <= end - start <= BATCH_BYTES_MAX:
        return False
    content = file.read(start, end - start)
    try:
        header = read_header(content)
    except Malformed:
        return False
    return verify_crc(content, 0, replace(header, batch_length=end - start - LENGTH_OVERHEAD))
