"""Read index files. Their formats are in `odradek.storage.segment.index`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.segment.index import CorruptIndex

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk


def read_entries(disk: Disk, path: str, entry_bytes: int, *, whole: bool) -> bytes:
    """Return the content of an index file whose entries have `entry_bytes` bytes; its last entry if not `whole`.

    Raises:
        CorruptIndex: The last entry is not complete.
        OSError: A disk operation fails.
    """
    if whole:
        content = disk.read_file(path)
        _refuse_partial_entry(path, len(content), entry_bytes)
        return content
    file = disk.open(path, create=False)
    try:
        _refuse_partial_entry(path, file.size, entry_bytes)
        start = max(0, file.size - entry_bytes)
        return bytes(file.read(start, file.size - start))
    finally:
        file.close()


def _refuse_partial_entry(path: str, size: int, entry_bytes: int) -> None:
    if size % entry_bytes:
        raise CorruptIndex(f"{path} has {size} bytes, not a multiple of {entry_bytes}")
