"""Plans of the source. The cases of `split` are those of Spark's KafkaOffsetRangeCalculatorSuite."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client import EARLIEST, LATEST, TopicPartition
from odradek.spark.errors import InvalidInput
from odradek.spark.source_offsets import (
    OffsetRange,
    as_json,
    batch_plan,
    from_json,
    limited,
    lookup,
    new_offsets,
    split,
    stream_plan,
    unmatched,
)
from odradek.spark.source_options import AtTimestamp, ByOffset, ByTimestamp, Everywhere

A, B, C = (TopicPartition(name, 1) for name in ("t1", "t2", "t3"))
Spans = list[tuple[TopicPartition, int, int]]


@pytest.mark.parametrize(
    ("ranges", "tasks_min", "records_max", "expected"),
    [
        ([(A, 1, 2)], None, None, [(A, 1, 2)]),
        ([(A, 1, 2), (B, 1, 1)], None, None, [(A, 1, 2)]),
        ([(A, 1, 2), (B, 1, 2), (C, 1, 2)], 3, None, [(A, 1, 2), (B, 1, 2), (C, 1, 2)]),
        ([(A, 1, 5)], 4, None, [(A, 1, 2), (A, 2, 3), (A, 3, 4), (A, 4, 5)]),
        ([(A, 1, 5), (B, 1, 21)], 4, None, [(A, 1, 5), (B, 1, 7), (B, 7, 14), (B, 14, 21)]),
        ([(A, 1, 1), (B, 1, 21)], 4, None, [(B, 1, 6), (B, 6, 11), (B, 11, 16), (B, 16, 21)]),
        ([(A, 1, 2), (B, 1, 1001)], 4, None, [(A, 1, 2), (B, 1, 334), (B, 334, 667), (B, 667, 1001)]),
        ([(A, 1, 5), (B, 1, 21)], 1, None, [(A, 1, 5), (B, 1, 21)]),
        ([(A, 1, 11)], 3, None, [(A, 1, 4), (A, 4, 7), (A, 7, 11)]),
        (
            [(A, 0, 10), (B, 0, 10), (C, 0, 1)], 6, None,
            [(A, 0, 3), (A, 3, 6), (A, 6, 10), (B, 0, 3), (B, 3, 6), (B, 6, 10), (C, 0, 1)],
        ),
        (
            [(A, 0, 500), (B, 0, 12000), (C, 0, 15001)], 6, None,
            [(A, 0, 500), (B, 0, 6000), (B, 6000, 12000), (C, 0, 5000), (C, 5000, 10000), (C, 10000, 15001)],
        ),
        (
            [(A, 0, 1), (B, 0, 1), (C, 0, 10000)], 6, None,
            [(A, 0, 1), (B, 0, 1), (C, 0, 2500), (C, 2500, 5000), (C, 5000, 7500), (C, 7500, 10000)],
        ),
        ([(A, 1, 5)], None, 4, [(A, 1, 5)]),
        ([(A, 1, 6)], None, 4, [(A, 1, 3), (A, 3, 6)]),
        (
            [(A, 1, 40), (B, 1, 50), (C, 1, 60)], None, 20,
            [
                (A, 1, 20), (A, 20, 40), (B, 1, 17), (B, 17, 33), (B, 33, 50), (C, 1, 20), (C, 20, 40), (C, 40, 60),
            ],
        ),
        ([(A, 1, 40)], 1, 20, [(A, 1, 20), (A, 20, 40)]),
        ([(A, 1, 40)], 4, 20, [(A, 1, 10), (A, 10, 20), (A, 20, 30), (A, 30, 40)]),
    ],
)  # fmt: skip
def test_ranges_are_split_as_in_the_stock_source(
    ranges: Spans, tasks_min: int | None, records_max: int | None, expected: Spans
) -> None:
    assert split([OffsetRange(*each) for each in ranges], tasks_min, records_max) == expected


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=6),
    tasks_min=st.none() | st.integers(1, 50),
    records_max=st.none() | st.integers(1, 2_000),
)
def test_split_drops_and_repeats_no_offset(sizes: list[int], tasks_min: int | None, records_max: int | None) -> None:
    ranges = [OffsetRange(TopicPartition("t", index), 7, 7 + size) for index, size in enumerate(sizes)]
    pieces = split(ranges, tasks_min, records_max)
    for each in ranges:
        own = [piece for piece in pieces if piece.partition == each.partition]
        assert sum(piece.size for piece in own) == each.size
        assert all(piece.size > 0 for piece in own)
        assert [piece.start for piece in own[1:]] == [piece.end for piece in own[:-1]]
    assert records_max is None or all(piece.size <= records_max for piece in pieces)


def test_offsets_have_the_form_of_the_stock_source_in_a_fixed_order() -> None:
    offsets = {TopicPartition("b", 10): 5, TopicPartition("b", 2): 7, TopicPartition("a", 0): 12}
    assert json.dumps(as_json(offsets)) == '{"a": {"0": 12}, "b": {"2": 7, "10": 5}}'
    assert from_json(as_json(offsets)) == offsets


def test_bounds_are_looked_up_or_exact() -> None:
    assert lookup(Everywhere(EARLIEST), [A, B]) == ({}, {A: EARLIEST, B: EARLIEST})
    assert lookup(AtTimestamp(5), [A]) == ({}, {A: 5})
    assert lookup(ByTimestamp({A: 5, B: 6}), [A, B]) == ({}, {A: 5, B: 6})
    assert lookup(ByOffset({A: 5, B: LATEST}), [A, B]) == ({A: 5}, {B: LATEST})


def test_bound_with_other_partitions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must name all partitions and no others: t2-1 are not named; t3-1 are not"):
        lookup(ByOffset({A: 5, C: 1}), [A, B])


def test_timestamp_without_a_record_is_the_end() -> None:
    wanted = lookup(ByTimestamp({A: 5, B: 6}), [A, B])
    assert unmatched(wanted, {A: 0, B: -1}) == {B: LATEST}


def test_batch_ends_with_the_log() -> None:
    plan = batch_plan({A: 1, B: 2}, {A: 5, B: 9}, {A: 7, B: 8})
    assert plan.ranges == [(A, 1, 5), (B, 2, 8)]
    assert plan.losses == ["t2-1 ends at offset 8, before the ending offset 9"]


def test_new_partition_of_a_stream_begins_at_its_log_start() -> None:
    plan = stream_plan({A: 5}, {A: 9, B: 4}, {B: 0})
    assert (plan.ranges, plan.losses) == ([(A, 5, 9), (B, 0, 4)], [])


@pytest.mark.parametrize(
    ("start", "end", "earliest", "ranges", "loss"),
    [
        ({A: 5, B: 1}, {A: 9}, {}, [(A, 5, 9)], "t2-1 do not exist any more"),
        ({A: 5}, {A: 9, B: 4}, {}, [(A, 5, 9)], "t2-1 do not exist any more"),
        ({A: 5}, {A: 9, B: 4}, {B: 3}, [(A, 5, 9), (B, 3, 4)], "new partition t2-1 begins at offset 3, not at 0"),
        ({A: 5}, {A: 3}, {}, [(A, 5, 3)], "the end of t1-1 went back from 5 to 3"),
    ],
)
def test_loss_of_records_is_reported(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    ranges: Spans,
    loss: str,
) -> None:
    assert stream_plan(start, end, earliest) == (ranges, [loss])


def test_limit_is_shared_in_proportion_and_no_partition_starves() -> None:
    start = {A: 0, B: 100}
    end = {A: 1_000, B: 110, C: 20}
    assert limited(start, end, {C: 10}, 51) == {A: 50, B: 101, C: 11}
    assert limited(start, end, {C: 10}, 5_000) == end
    assert limited(end, end, {}, 5) == end


def test_partition_whose_end_went_back_does_not_count_for_the_limit() -> None:
    assert limited({A: 0, B: 50}, {A: 100, B: 10}, {}, 10) == {A: 10, B: 10}


def test_new_offsets_count_new_partitions_from_zero() -> None:
    assert new_offsets({A: 5}, {A: 9, B: 4}) == 8
