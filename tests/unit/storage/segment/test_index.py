from __future__ import annotations

import struct
from array import array
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import odradek.storage.segment.index as index_module
from odradek.storage.segment.index import (
    TXN_BLOCK_ENTRIES,
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
)

# Kafka: producer 1000, transaction from 10, ABORT marker at 20, last stable offset 21
TXN_VECTOR = bytes.fromhex("000000000000000003e8000000000000000a00000000000000140000000000000015")


def increasing(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), unique=True, max_size=30).map(sorted)


@given(keys=increasing(2**31 - 1), base=st.integers(0, 2**40), data=st.data())
def test_offset_index_is_written_in_kafkas_format_and_searched(keys: list[int], base: int, data: st.DataObject) -> None:
    positions = [100 * number for number in range(1, len(keys) + 1)]
    index = OffsetIndex(base)
    for key, position in zip(keys, positions, strict=True):
        index.append(base + key, position, base + key)
    encoded = index.encode()
    assert encoded == b"".join(struct.pack(">ii", *row) for row in zip(keys, positions, strict=True))
    decoded = OffsetIndex(base, encoded)
    assert decoded.entries() == index.entries()
    assert index.encode(len(keys) // 2) == encoded[len(keys) // 2 * 8 :]
    offset = base + data.draw(st.integers(0, 2**31))
    below = [position for key, position in zip(keys, positions, strict=True) if base + key <= offset]
    assert decoded.position_for(offset)[0] == (below[-1] if below else 0)
    position = data.draw(st.integers(0, 100 * len(keys) + 50))
    behind = [base + key for key, at in zip(keys, positions, strict=True) if at >= position]
    assert decoded.offset_at_or_after(position) == (behind[0] if behind else None)
    decoded.truncate_to(offset)
    assert decoded.entries() == [(base + k, p) for k, p in zip(keys, positions, strict=True) if base + k < offset]


@given(stamps=increasing(2**62), base=st.integers(0, 2**40), data=st.data())
def test_time_index_is_written_in_kafkas_format_and_searched(stamps: list[int], base: int, data: st.DataObject) -> None:
    index = TimeIndex(base)
    for number, stamp in enumerate(stamps):
        index.maybe_append(stamp, base + 10 * number)
        index.maybe_append(stamp, base + 10 * number + 5)  # not newer: no entry
    encoded = index.encode()
    assert encoded == b"".join(struct.pack(">qi", stamp, 10 * number) for number, stamp in enumerate(stamps))
    decoded = TimeIndex(base, encoded)
    assert decoded.entries() == index.entries()
    target = data.draw(st.integers(0, 2**62))
    below = [base + 10 * number for number, stamp in enumerate(stamps) if stamp <= target]
    assert decoded.offset_for(target) == (below[-1] if below else base)


def test_batch_of_this_process_is_found_by_its_first_offset() -> None:
    index = OffsetIndex(100)
    index.append(119, 5000, 110)
    assert index.position_for(109) == (0, False)
    assert index.position_for(110) == (5000, True)
    assert index.position_for(115) == (5000, False)
    from_file = OffsetIndex(100, index.encode())
    assert from_file.position_for(110) == (0, False)
    assert from_file.position_for(119) == (5000, True)


def test_txn_index_is_written_in_kafkas_format() -> None:
    index = TxnIndex(0, TXN_VECTOR)
    assert index.entries() == [AbortedTransaction(1000, 10, 20, 21)]
    assert index.encode() == TXN_VECTOR


@pytest.mark.parametrize(
    "data",
    [
        TXN_VECTOR[:-1],
        TXN_VECTOR + TXN_VECTOR,
        b"\x00\x01" + TXN_VECTOR[2:],
        AbortedTransaction(1, 30, 20, 21).encode(),
        AbortedTransaction(1, -1, 20, 21).encode(),
        AbortedTransaction(1, 10, 20, 22).encode(),
        AbortedTransaction(1, 2, 3, 4).encode(),
        bytes(34),
    ],
    ids=[
        "half",
        "twice",
        "version",
        "first behind last",
        "negative",
        "stable behind marker",
        "below the base",
        "zeros",
    ],
)
def test_txn_index_with_impossible_values_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TxnIndex(5, data)


@pytest.mark.parametrize(
    "data", [bytes(7), bytes(8) + bytes(8), struct.pack(">iiii", 5, 100, 4, 200), struct.pack(">ii", -1, 0)]
)
def test_offset_index_with_impossible_values_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex(0, data)


@pytest.mark.parametrize("data", [bytes(11), bytes(24), struct.pack(">qiqi", 5, 100, 6, 99), struct.pack(">qi", -5, 0)])
def test_time_index_with_impossible_values_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex(0, data)


ENTRIES = [
    AbortedTransaction(1, 4, 20, 10),
    AbortedTransaction(2, 10, 30, 25),
    AbortedTransaction(3, 25, 40, 41),
]


@pytest.mark.parametrize(
    ("fetch_offset", "upper", "found", "complete"),
    [
        (0, 4, [], True),
        (0, 10, [(1, 4)], True),
        (0, 11, [(1, 4), (2, 10)], True),
        (21, 26, [(2, 10), (3, 25)], True),
        (31, 42, [(3, 25)], False),
        (41, 50, [], False),
    ],
)
def test_aborted_transactions_of_a_range(
    fetch_offset: int, upper: int, found: list[tuple[int, int]], complete: bool
) -> None:
    index = TxnIndex(0)
    for entry in ENTRIES:
        index.append(entry)
    collected: list[tuple[int, int]] = []
    assert index.collect(fetch_offset, upper, collected) is complete
    assert collected == found


def test_txn_index_truncation_removes_markers_at_or_above_the_offset() -> None:
    index = TxnIndex(0)
    for entry in ENTRIES:
        index.append(entry)
    index.truncate_to(30)
    assert index.entries() == ENTRIES[:1]


class PlainIndex:
    """Kafka's scan of all entries, as `TransactionIndex.collectAbortedTxns` does it."""

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []

    def collect(self, fetch_offset: int, upper: int) -> tuple[list[tuple[int, int]], bool]:
        found = []
        for entry in self.entries:
            if entry.last_offset < fetch_offset:
                continue
            if entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found, True
        return found, False


@given(
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100), st.integers(0, 100)), max_size=30),
    truncations=st.dictionaries(st.integers(0, 29), st.integers(0, 60), max_size=3),
    ranges=st.lists(st.tuples(st.integers(-1, 100), st.integers(-1, 100)), max_size=10),
    block_entries=st.integers(1, 5),
)
def test_search_with_the_summary_finds_what_a_scan_of_all_entries_finds(
    rows: list[tuple[int, int, int]],
    truncations: dict[int, int],
    ranges: list[tuple[int, int]],
    block_entries: int,
) -> None:
    """First offsets and last stable offsets have any order here, and truncations are between the appends."""
    with patch.object(index_module, "TXN_BLOCK_ENTRIES", block_entries):
        index, plain, last_offset = TxnIndex(0), PlainIndex(), 0
        for number, (step, first, stable) in enumerate(rows):
            last_offset += step
            entry = AbortedTransaction(number, first % last_offset, last_offset, stable % (last_offset + 2))
            index.append(entry)
            plain.entries.append(entry)
            if number in truncations:
                offset = truncations[number]
                index.truncate_to(offset)
                plain.entries = [entry for entry in plain.entries if entry.last_offset < offset]
                last_offset = plain.entries[-1].last_offset if plain.entries else 0
        assert index.entries() == plain.entries
        for searched in (index, TxnIndex(0, index.encode())):
            for fetch_offset, upper in ranges:
                collected: list[tuple[int, int]] = []
                complete = searched.collect(fetch_offset, upper, collected)
                assert (collected, complete) == plain.collect(fetch_offset, upper)


class CountedReads(array):  # type: ignore[type-arg]  # a base class with parameters is not possible at run time
    """Array that counts the elements read from it."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        CountedReads.reads += len(found) if isinstance(at, slice) else 1
        return found


def test_search_in_the_range_of_an_open_transaction_skips_blocks_without_a_result() -> None:
    """Its last stable offset stays low, and the last entry is a transaction that began before all of them."""
    index = TxnIndex(0)
    blocks = 50
    for number in range(blocks * TXN_BLOCK_ENTRIES):
        index.append(AbortedTransaction(number, 10 + 2 * number, 11 + 2 * number, 5))
    index.append(AbortedTransaction(7, 6, 10**6, 5))
    for name, column in list(vars(index).items()):
        if isinstance(column, array):
            setattr(index, name, CountedReads("q", column))
    CountedReads.reads = 0
    collected: list[tuple[int, int]] = []
    assert not index.collect(5, 20, collected)
    assert collected == [(0, 10), (1, 12), (2, 14), (3, 16), (4, 18), (7, 6)]
    assert CountedReads.reads <= 2 * blocks + 3 * TXN_BLOCK_ENTRIES
