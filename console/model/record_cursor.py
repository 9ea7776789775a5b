"""Positions in all partitions of a topic, and the records that a page shows of them in the order of time. It is pure.

A page takes from each partition records that follow each other, so that the next page continues without a gap. A record
whose time is before that of an earlier record of its partition is ordered by the time of the earlier one.
"""

from __future__ import annotations

import heapq
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from odradek.client.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.console.model.log_record import LogRecord
    from odradek.console.model.partition_log import LogPage

PARTITIONS_MAX: Final = 32
"""Maximum partitions of a position, and those that one page reads. With more, a partition must be selected."""
CHARACTERS_MAX: Final = PARTITIONS_MAX * 31
"""Maximum characters of a position in an address: per partition 10 digits, 19 digits and two separators."""
ENTRY: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")
OFFSET_MAX: Final = 2**63 - 1

Cursor = dict[int, int]
"""Offset by partition."""


def parse_cursor(text: str) -> Cursor | None:
    """Parse a position of the form `0-120.1-88`: partition, offset. Return None for an empty text.

    Raise InvalidArgument if it is malformed, or if it names a partition twice or too many of them.
    """
    if not text:
        return None
    cursor: Cursor = {}
    entries = text.split(".", PARTITIONS_MAX) if len(text) <= CHARACTERS_MAX else []
    for entry in entries:
        found = ENTRY.fullmatch(entry)
        partition, offset = (int(found[1]), int(found[2])) if found else (-1, -1)
        if found is None or offset > OFFSET_MAX or partition in cursor:
            cursor = {}
            break
        cursor[partition] = offset
    if not cursor or len(cursor) > PARTITIONS_MAX:
        raise InvalidArgument("the position in the address is malformed", "show the newest records")
    return cursor


def format_cursor(cursor: Mapping[int, int]) -> str:
    """Return a position as text. See `parse_cursor`."""
    return ".".join(f"{partition}-{offset}" for partition, offset in sorted(cursor.items()))


def newest(pages: Mapping[int, LogPage], count: int, *, strict: bool) -> dict[int, int]:
    """Return how many records of the end of each partition are among the newest.

    With `strict`, they end before the first record of a partition that may have further ones of that time.
    """
    times = {index: list(accumulate(_times(page.rows), max)) for index, page in pages.items()}
    return _merged({index: [-time for time in reversed(found)] for index, found in times.items()}, pages, count, strict)


def oldest(pages: Mapping[int, LogPage], count: int, *, strict: bool) -> dict[int, int]:
    """Return how many records of the begin of each partition are among the oldest. See `newest`."""
    times = {index: list(accumulate(reversed(_times(page.rows)), min)) for index, page in pages.items()}
    return _merged({index: found[::-1] for index, found in times.items()}, pages, count, strict)


def _times(rows: Sequence[LogRecord]) -> list[int]:
    return [row.timestamp_ms for row in rows]


def _merged(
    keys: Mapping[int, Sequence[int]], pages: Mapping[int, LogPage], count: int, strict: bool
) -> dict[int, int]:
    """Take keys in ascending order. Return how many keys of each partition were taken."""
    taken = dict.fromkeys(keys, 0)
    heap = [(found[0], index) for index, found in keys.items() if found]
    heapq.heapify(heap)
    for _ in range(count):
        if not heap:
            break
        index = heapq.heappop(heap)[1]
        taken[index] += 1
        if taken[index] < len(keys[index]):
            heapq.heappush(heap, (keys[index][taken[index]], index))
        elif strict and not pages[index].complete:
            break
    return taken


def positions(pages: Mapping[int, LogPage], taken: Mapping[int, int], *, forward: bool) -> tuple[Cursor, Cursor]:
    """Return the positions of the pages with older and with newer records than those that were taken."""
    older, newer = {}, {}
    for index, page in pages.items():
        shown, rows = taken[index], page.rows
        older[index], newer[index] = page.first, page.end
        if shown < len(rows) and forward:
            newer[index] = rows[shown].offset
        elif shown < len(rows):
            older[index] = rows[-shown].offset if shown else rows[-1].offset + 1
    return older, newer
