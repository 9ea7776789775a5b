"""Offsets that no batch of a log covers."""

from __future__ import annotations

import pytest

from odradek.pipeline.audit.evidence import PartitionScan
from odradek.protocol.batch import build_batch, read_header

BATCH = 2
"""Records per batch."""


def add(scan: PartitionScan, base_offset: int) -> None:
    batch = build_batch([(None, b"value", 1, ())] * BATCH, base_offset=base_offset)
    scan.add(read_header(batch), memoryview(batch))


@pytest.mark.parametrize(
    ("compacted_below", "offsets", "missing"),
    [
        (0, (0, 2, 4), 0),
        (0, (0, 5, 7), 3),
        (0, (4, 9), 7),
        (1, (4, 6), 0),
        (5, (0, 4, 9), 3),
        (9, (0, 4, 9), 0),
    ],
)
def test_offsets_without_a_batch_are_counted_unless_compaction_removed_them(
    compacted_below: int, offsets: tuple[int, ...], missing: int
) -> None:
    scan = PartitionScan("t", 0, 0, compacted_below)
    for offset in offsets:
        add(scan, offset)
    assert scan.finish().missing == missing


def test_batch_that_begins_below_the_first_offset_leaves_no_offset_out() -> None:
    scan = PartitionScan("t", 0, 3, 0)
    scan.skip(read_header(build_batch([(None, b"value", 1, ())] * BATCH, base_offset=2)))
    add(scan, 4)
    assert (scan.finish().missing, scan.finish().end) == (0, 6)
