"""The files that a stop may have left half-way: sorted out before a log is opened (kafka-facts 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.batches.scan import Scan
from odradek.storage.files import names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk

KRAFT_SNAPSHOT = ".checkpoint"  # snapshots of the metadata log, and their `.deleted` ones, belong to somebody else


def sweep(disk: Disk, directory: str) -> None:
    """Remove deleted and half-cleaned files, finish swaps that were complete, drop indexes without a log.

    The cleaner renames its `.cleaned` files to `.swap` from the highest offset down. So a swap was complete only if no
    `.cleaned` file is left at or below it; the originals that it replaces are those with offsets in its range.
    """
    present = [name for name in disk.list(directory) if KRAFT_SNAPSHOT not in name]
    cleaned = [base for base, _ in _with_suffix(present, names.CLEANED_SUFFIX)]
    for name in present:
        incomplete_swap = (
            name.endswith(names.SWAP_SUFFIX) and cleaned and _base(name, names.SWAP_SUFFIX) >= min(cleaned)
        )
        if name.endswith((names.DELETED_SUFFIX, names.CLEANED_SUFFIX)) or incomplete_swap:
            disk.remove(f"{directory}/{name}")
    _finish_swaps(disk, directory)
    _drop_orphans(disk, directory)


def _finish_swaps(disk: Disk, directory: str) -> None:
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


def _drop_orphans(disk: Disk, directory: str) -> None:
    parsed = [(name, names.parse_offset_file(name)) for name in disk.list(directory)]
    logs = [entry[0] for _, entry in parsed if entry and entry[1] == names.LOG_SUFFIX]
    for name, entry in parsed:
        if entry and entry[1] in names.SEGMENT_SUFFIXES and entry[0] not in logs:
            disk.remove(f"{directory}/{name}")


def _end_offset(disk: Disk, path: str) -> int:
    file = disk.open(path, create=False)
    try:
        return max((header.last_offset + 1 for _, header, _ in Scan(file, 0, file.size)), default=0)
    finally:
        file.close()


def _with_suffix(present: list[str], suffix: str) -> list[tuple[int, str]]:
    found = [(names.parse_offset_file(name.removesuffix(suffix)), name) for name in present if name.endswith(suffix)]
    return [(parsed[0], name) for parsed, name in found if parsed is not None]


def _base(name: str, suffix: str) -> int:
    parsed = names.parse_offset_file(name.removesuffix(suffix))
    return -1 if parsed is None else parsed[0]
