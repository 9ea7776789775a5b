"""Clean up files that a crash left incomplete, before a log is opened (Kafka's `LogLoader`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.batches.scan import Scan
from odradek.storage.files import names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk

_INCOMPLETE_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX)
METADATA_SNAPSHOT = ".checkpoint"
"""Part of the names of metadata snapshots (KIP-630). The quorum's storage manages them, deleted ones included."""


def sweep(disk: Disk, directory: str, present: list[str]) -> list[str]:
    """Clean up the directory with the files `present`, and return the names of the files that it has then.

    Remove deleted and `.cleaned` files, complete replacements of segments, and remove indexes without a log file.

    Kafka renames `.cleaned` files to `.swap` from the highest offset down. So a `.swap` file is complete only if there
    is no `.cleaned` file at or below its offset. It replaces the segments whose offsets are in its range.

    Raises:
        OSError: A disk operation fails.
    """
    if any(name.endswith(_INCOMPLETE_SUFFIXES) for name in present):
        _remove_incomplete(disk, directory, [name for name in present if METADATA_SNAPSHOT not in name])
        _complete_swaps(disk, directory)
        present = disk.list(directory)
    if any(name.endswith(names.INDEX_SUFFIXES) for name in present):
        orphans = _orphan_indexes(present)
        for name in orphans:
            disk.remove(f"{directory}/{name}")
        present = [name for name in present if name not in orphans]
    return present


def _remove_incomplete(disk: Disk, directory: str, present: list[str]) -> None:
    cleaned = [base for base, _ in _with_suffix(present, names.CLEANED_SUFFIX)]
    for name in present:
        incomplete_swap = (
            name.endswith(names.SWAP_SUFFIX) and cleaned and _base(name, names.SWAP_SUFFIX) >= min(cleaned)
        )
        if name.endswith((names.DELETED_SUFFIX, names.CLEANED_SUFFIX)) or incomplete_swap:
            disk.remove(f"{directory}/{name}")


def _complete_swaps(disk: Disk, directory: str) -> None:
    present = disk.list(directory)
    swaps = _with_suffix(present, names.SWAP_SUFFIX)
    logs = [base for base, name in swaps if name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX)]
    if logs:
        replaced_end = _end_offset(
            disk, f"{directory}/{names.offset_file(max(logs), names.LOG_SUFFIX)}{names.SWAP_SUFFIX}"
        )
        for name in present:
            parsed = names.parse_offset_file(name)
            if parsed and parsed[1] in names.SEGMENT_SUFFIXES and min(logs) <= parsed[0] < replaced_end:
                disk.remove(f"{directory}/{name}")
    for _, name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP_SUFFIX)}")


def _orphan_indexes(present: list[str]) -> list[str]:
    parsed = [(name, entry) for name in present if (entry := names.parse_offset_file(name))]
    logs = {entry[0] for _, entry in parsed if entry[1] == names.LOG_SUFFIX}
    return [name for name, entry in parsed if entry[1] in names.SEGMENT_SUFFIXES and entry[0] not in logs]


def _end_offset(disk: Disk, path: str) -> int:
    file = disk.open(path, create=False)
    try:
        return max((header.last_offset + 1 for _, header, _ in Scan(file, 0, file.size)), default=0)
    finally:
        file.close()


def _with_suffix(present: list[str], suffix: str) -> list[tuple[int, str]]:
    parsed = [(names.parse_offset_file(name.removesuffix(suffix)), name) for name in present if name.endswith(suffix)]
    return [(entry[0], name) for entry, name in parsed if entry is not None]


def _base(name: str, suffix: str) -> int:
    parsed = names.parse_offset_file(name.removesuffix(suffix))
    return -1 if parsed is None else parsed[0]
