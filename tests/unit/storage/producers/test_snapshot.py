from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.producers.entry import CachedBatch, ProducerEntry
from odradek.storage.producers.snapshot import CorruptSnapshot, SnapshotFiles, decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from pathlib import Path

# one entry: producer 1000, epoch 5, last sequence 9, last offset 41, delta 4, coordinator epoch 7, no open transaction
VECTOR = bytes.fromhex(
    "0001a0b6840a0000000100000000000003e80005000000090000000000000029000000040000018bcfe5680000000007ffffffffffffffff"
)
ENTRY = ProducerEntry(1000, 5, 7, 1_700_000_000_000, None, [CachedBatch(9, 41, 4, 1_700_000_000_000)])
MARKERS_ONLY = ProducerEntry(7, 2, 3, 1000, None, [])
OPEN = ProducerEntry(8, 2, -1, 1000, 17, [CachedBatch(0, 17, 0, 1000)])


def test_snapshot_has_the_bytes_of_kafka() -> None:
    assert encode_snapshot([ENTRY]) == VECTOR
    assert decode_snapshot(VECTOR) == [ENTRY]


def test_snapshot_round_trip() -> None:
    entries = [ENTRY, MARKERS_ONLY, OPEN]
    assert decode_snapshot(encode_snapshot(entries)) == entries
    assert decode_snapshot(encode_snapshot([])) == []


def test_only_the_last_batch_is_kept() -> None:
    many = ProducerEntry(1, 0, -1, 4, None, [CachedBatch(n, n, 0, n) for n in range(5)])
    assert decode_snapshot(encode_snapshot([many]))[0].batches == many.batches[-1:]


@pytest.mark.parametrize("size", range(len(VECTOR)))
def test_snapshot_truncated_at_any_byte_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(VECTOR[:size])


@pytest.mark.parametrize("at", range(len(VECTOR)))
def test_snapshot_with_any_flipped_bit_is_corrupt(at: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(VECTOR[:at] + bytes([VECTOR[at] ^ 1]) + VECTOR[at + 1 :])


def test_damaged_snapshot_is_replaced_by_the_previous_one(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(), str(tmp_path), OsDisk().list(str(tmp_path)))
    files.take([ENTRY], 10)
    files.take([OPEN], 20)
    files.take([MARKERS_ONLY], 20)  # taken already
    files.sync_now()
    assert files.load_newest(99) == (20, [OPEN])
    (tmp_path / f"{20:020d}.snapshot").write_bytes(b"damaged")
    reopened = SnapshotFiles(OsDisk(), str(tmp_path), OsDisk().list(str(tmp_path)))
    assert reopened.load_newest(99) == (10, [ENTRY])
    assert reopened.offsets == [10]
    assert reopened.load_newest(9) is None


def test_stray_snapshots_are_removed_except_the_newest_in_the_active_segment(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(), str(tmp_path), OsDisk().list(str(tmp_path)))
    for offset in (5, 10, 15, 25, 30, 35, 40, 45):
        files.take([], offset)
    files.remove_strays([0, 10, 20], high_watermark=29, recovery_start=15)
    assert files.offsets == [10, 15, 25, 35, 40, 45]
    assert SnapshotFiles(OsDisk(), str(tmp_path), OsDisk().list(str(tmp_path))).offsets == files.offsets
