"""The three indexes of a segment, in memory and in Kafka's file formats.

This module is pure: the segment writes the files. Entries are appended in memory. They reach the offset and time index
files when the segment is rolled, flushed or closed, or when many are pending.

Kafka preallocates and maps both files, and trims them at roll and close. Odradek does not preallocate: the files have
their exact size, as Kafka's have after a clean shutdown, so Kafka and its tools read them. After an unclean shutdown
both rebuild the indexes of each segment that was not flushed. Odradek keeps the entries below the recovery start.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import le, lt
from typing import Final

from odradek.frozen import frozen_dataclass
from odradek.invariants.storage import OFFSET_INDEX_ORDER, TIME_INDEX_ORDER, TXN_INDEX_ORDER
from odradek.protocol.batch import NO_TIMESTAMP

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
TXN_ENTRY_BYTES = 34
TXN_ENTRY_VERSION = 0
INDEX_INTERVAL_BYTES_MAX: Final = 64 * 1024
"""Maximum bytes of batches between two index entries, apart from the size of one batch.

A read scans the batches after an index entry in one step: at most about 900 batches, which take about 0.6 ms.
"""
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Maximum distance of an offset from the base offset of its segment. Index entries store it as an int32."""

TXN_BLOCK_ENTRIES: Final = 128
"""Entries of the transaction index per block of its summary. A search examines two numbers per block, which takes about
0.3 ms for 500,000 entries, and all entries of each block that has a result. The summary adds 0.1 bytes per entry."""

_HIGH, _LOW = (1, 0) if sys.byteorder == "little" else (0, 1)  # halves of a native 64-bit number
_TXN_ENTRY = struct.Struct(">hqqqq")


class CorruptIndex(ValueError):
    """The file is not a sorted index of whole entries. It must be rebuilt from the log file."""


class OffsetIndex:
    """Map from the last offset of a batch to the position of the batch in the log file. Both are increasing.

    `_starts` has the first offset of each batch that this process has appended. The file has no field for it. A fetch
    mostly starts at the first offset of a batch, and then finds the batch without a read of the one before.
    """

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        self.keys, self._positions = self._parse(data)
        self._starts = self.keys[:]
        self.persisted = len(self.keys)
        """Number of entries that are in the file."""

    @staticmethod
    def _parse(data: bytes) -> tuple[array[int], array[int]]:
        if len(data) % OFFSET_ENTRY_BYTES:
            raise CorruptIndex(f"the offset index has {len(data)} bytes, not a multiple of {OFFSET_ENTRY_BYTES}")
        if not data:
            return array("q"), array("q")
        values = array("i", data)
        if sys.byteorder == "little":
            values.byteswap()
        keys, positions = array("q", values[::2]), array("q", values[1::2])
        for column in (keys, positions):
            if column and (column[0] < 0 or not all(map(lt, column, column[1:]))):
                raise CorruptIndex("the entries of the offset index are not in increasing order")
        return keys, positions

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def last_position(self) -> int:
        """Position of the last entry; 0 if there is none."""
        return self._positions[-1] if self._positions else 0

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        return self.base_offset + (self.keys[-1] if self.keys else 0)

    def append(self, last_offset: int, position: int, first_offset: int) -> None:
        """Add the entry of a batch. Its offsets and its position must be greater than those of the last entry."""
        key = last_offset - self.base_offset
        if not 0 <= key <= RELATIVE_OFFSET_MAX or (
            self.keys and not (key > self.keys[-1] and position > self._positions[-1])
        ):
            raise OFFSET_INDEX_ORDER.violated(
                base_offset=self.base_offset,
                offset=last_offset,
                position=position,
                last_offset=self.last_offset,
                last_position=self.last_position,
            )
        self.keys.append(key)
        self._positions.append(position)
        self._starts.append(first_offset - self.base_offset)

    def position_for(self, offset: int) -> tuple[int, bool]:
        """Return the position to scan from for the batch that holds `offset`, and True if that batch begins there."""
        relative = offset - self.base_offset
        at = bisect_right(self._starts, relative) - 1
        if at < 0:
            return 0, False
        return self._positions[at], self._starts[at] == relative

    def offset_at_or_after(self, position: int) -> int | None:
        """Return the offset of the first entry whose position is not below `position`; None if there is none."""
        at = bisect_left(self._positions, position)
        return self.base_offset + self.keys[at] if at < len(self.keys) else None

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        self._keep(bisect_left(self.keys, offset - self.base_offset))

    def _keep(self, count: int) -> None:
        del self.keys[count:], self._positions[count:], self._starts[count:]
        self.persisted = min(self.persisted, count)

    def encode(self, first: int = 0) -> bytes:
        """Return the bytes of the file from entry number `first` on."""
        interleaved = array("i", bytes(OFFSET_ENTRY_BYTES * (len(self.keys) - first)))
        interleaved[::2] = array("i", self.keys[first:])
        interleaved[1::2] = array("i", self._positions[first:])
        if sys.byteorder == "little":
            interleaved.byteswap()
        return interleaved.tobytes()

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of all entries."""
        return [(self.base_offset + key, position) for key, position in zip(self.keys, self._positions, strict=True)]


class TimeIndex:
    """Map from the largest timestamp up to a batch to the offset of the batch that has it.

    Timestamps are strictly increasing. Offsets never decrease.
    """

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        if len(data) % TIME_ENTRY_BYTES:
            raise CorruptIndex(f"the time index has {len(data)} bytes, not a multiple of {TIME_ENTRY_BYTES}")
        self._timestamps, self.keys = self._parse(data)
        self.persisted = len(self.keys)

    @staticmethod
    def _parse(data: bytes) -> tuple[array[int], array[int]]:
        if not data:
            return array("q"), array("q")
        words = array("i", data)
        if sys.byteorder == "little":
            words.byteswap()
        halves = array("i", bytes(len(words) // 3 * 8))
        halves[_HIGH::2], halves[_LOW::2] = words[::3], words[1::3]
        timestamps, keys = array("q", halves.tobytes()), array("q", words[2::3])
        sorted_rows = all(map(lt, timestamps, timestamps[1:])) and all(map(le, keys, keys[1:]))
        if keys and not (sorted_rows and timestamps[0] >= 0 and keys[0] >= 0):
            raise CorruptIndex("the entries of the time index are not in increasing order")
        return timestamps, keys

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last_timestamp(self) -> int:
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.keys[-1] if self.keys else 0)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is greater than that of the last entry."""
        if timestamp > self.last_timestamp:
            key = offset - self.base_offset
            if not (self.keys[-1] if self.keys else 0) <= key <= RELATIVE_OFFSET_MAX:
                raise TIME_INDEX_ORDER.violated(
                    base_offset=self.base_offset, timestamp=timestamp, offset=offset, last_offset=self.last_offset
                )
            self._timestamps.append(timestamp)
            self.keys.append(key)

    def offset_for(self, timestamp: int) -> int:
        """Return the offset from which to scan for the first record with a timestamp of at least `timestamp`."""
        at = bisect_right(self._timestamps, timestamp) - 1
        return self.base_offset + (self.keys[at] if at >= 0 else 0)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        count = bisect_left(self.keys, offset - self.base_offset)
        del self._timestamps[count:], self.keys[count:]
        self.persisted = min(self.persisted, count)

    def encode(self, first: int = 0) -> bytes:
        """Return the bytes of the file from entry number `first` on."""
        halves = array("i", self._timestamps[first:].tobytes())
        words = array("i", bytes(TIME_ENTRY_BYTES * (len(self.keys) - first)))
        words[::3], words[1::3], words[2::3] = halves[_HIGH::2], halves[_LOW::2], array("i", self.keys[first:])
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of all entries."""
        return [(timestamp, self.base_offset + key) for timestamp, key in zip(self._timestamps, self.keys, strict=True)]


@frozen_dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """Entry of a `.txnindex` file: an aborted transaction with records.

    `last_offset` is the offset of the ABORT marker, `last_stable_offset` the last stable offset just after it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """Return the bytes of the entry."""
        return _TXN_ENTRY.pack(
            TXN_ENTRY_VERSION, self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset
        )


def equal_entries(first: memoryview, second: memoryview) -> int:
    """Return the number of entries at the start of two transaction index files that are equal."""
    size = min(len(first), len(second))
    if first[:size] != second[:size]:
        size = bisect_left(range(size), True, key=lambda at: first[: at + 1] != second[: at + 1])
    return size // TXN_ENTRY_BYTES


class TxnIndex:
    """Aborted transactions whose marker is in the segment, in the order of their markers.

    The entries of all segments stay in memory, so each takes 32 bytes: the numbers of an entry are in four arrays.

    Neither the first offsets nor the last stable offsets are sorted, so a binary search cannot find the end of a scan:

    1. One transaction stays open while 500,000 others abort. Their last stable offsets stay at its first offset.
    2. A reader with read_committed fetches from there. Only the first of the 500,000 overlap the range it reads.
    3. A transaction that began before all of them can follow as the last entry, so a scan has to reach the end.

    So the minimum of the first offsets and the maximum of the last stable offsets of each full block of
    TXN_BLOCK_ENTRIES entries are kept: a search skips a block without a result.
    """

    def __init__(self, base_offset: int, data: bytes = b"") -> None:
        self.base_offset = base_offset
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")
        self._block_first_min = array("q")
        self._block_stable_max = array("q")
        if len(data) % TXN_ENTRY_BYTES:
            raise CorruptIndex(f"the transaction index has {len(data)} bytes, not a multiple of {TXN_ENTRY_BYTES}")
        for version, *fields in _TXN_ENTRY.iter_unpack(data):
            if version != TXN_ENTRY_VERSION:
                raise CorruptIndex(f"the transaction index has an entry of the unknown version {version}")
            entry = AbortedTransaction(*fields)
            # The file has no checksum. An entry with impossible values shows that the file is damaged.
            if not (
                base_offset <= entry.last_offset
                and 0 <= entry.first_offset < entry.last_offset
                and 0 <= entry.last_stable_offset <= entry.last_offset + 1
                and (not len(self) or entry.last_offset > self._last_offsets[-1])
            ):
                raise CorruptIndex(f"the transaction index has an entry with impossible values: {entry}")
            self.append(entry)

    def __len__(self) -> int:
        return len(self._last_offsets)

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry. Its marker must be after that of the last entry."""
        last_marker = self._last_offsets[-1] if len(self) else -1
        if (
            not (last_marker < entry.last_offset > entry.first_offset)
            or entry.last_stable_offset > entry.last_offset + 1
        ):
            raise TXN_INDEX_ORDER.violated(entry=entry, last_marker=last_marker)
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._stable_offsets.append(entry.last_stable_offset)
        if len(self) % TXN_BLOCK_ENTRIES == 0:
            self._block_first_min.append(min(self._first_offsets[-TXN_BLOCK_ENTRIES:]))
            self._block_stable_max.append(max(self._stable_offsets[-TXN_BLOCK_ENTRIES:]))

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose marker is at or above `offset`."""
        count = bisect_left(self._last_offsets, offset)
        for column in self._columns():
            del column[count:]
        whole_blocks = count // TXN_BLOCK_ENTRIES
        del self._block_first_min[whole_blocks:], self._block_stable_max[whole_blocks:]

    def collect(self, fetch_offset: int, upper: int, aborted: list[tuple[int, int]]) -> bool:
        """Add (producer id, first offset) of the transactions that overlap [fetch_offset, upper) to `aborted`.

        Return True if no later segment has one: the last stable offset of an entry has reached `upper`. See Kafka's
        `TransactionIndex.collectAbortedTxns`.
        """
        start = bisect_left(self._last_offsets, fetch_offset)
        end, minima = len(self), self._block_first_min
        reached = self._first_reaching(start, upper)
        stop = min(end, reached + 1)
        for block in range(start // TXN_BLOCK_ENTRIES, -(-stop // TXN_BLOCK_ENTRIES)):
            if block == len(minima) or minima[block] < upper:
                low, high = max(start, block * TXN_BLOCK_ENTRIES), min(stop, (block + 1) * TXN_BLOCK_ENTRIES)
                pairs = zip(self._producer_ids[low:high], self._first_offsets[low:high], strict=True)
                aborted += [(producer_id, first) for producer_id, first in pairs if first < upper]
        return reached < end

    def _first_reaching(self, start: int, upper: int) -> int:
        """Return the first entry from `start` on whose last stable offset is at least `upper`; the end if none is."""
        end, maxima = len(self), self._block_stable_max
        for block in range(start // TXN_BLOCK_ENTRIES, -(-end // TXN_BLOCK_ENTRIES)):
            if block == len(maxima) or maxima[block] >= upper:
                for at in range(max(start, block * TXN_BLOCK_ENTRIES), min(end, (block + 1) * TXN_BLOCK_ENTRIES)):
                    if self._stable_offsets[at] >= upper:
                        return at
        return end

    def end_of(self, fetch_offset: int, count: int) -> int | None:
        """Return the offset after the marker of the transaction number `count` from `fetch_offset` on.

        Return None if there are fewer.
        """
        at = bisect_left(self._last_offsets, fetch_offset) + count - 1
        return self._last_offsets[at] + 1 if at < len(self) else None

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return b"".join(entry.encode() for entry in self.entries())

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries."""
        return [AbortedTransaction(*row) for row in zip(*self._columns(), strict=True)]

    def _columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets
