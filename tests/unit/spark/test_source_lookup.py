"""Bounds of batch queries on a log that grows between two look-ups. Leaders are fake."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import EARLIEST, LATEST, TopicPartition
from odradek.spark import source_lookup
from odradek.spark.errors import DataLoss
from odradek.spark.source_lookup import batch_ranges
from odradek.spark.source_options import check_batch, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.spark.source_offsets import OffsetRange, Offsets

T0 = TopicPartition("t", 0)
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


@pytest.fixture(autouse=True)
def _growing_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake a partition with one record per millisecond since 1970, to which 10 records are added after each look-up."""
    end = 100

    async def partitions_of(*_: Any, **__: Any) -> list[TopicPartition]:
        return [T0]

    async def offsets_of_partitions(_cluster: object, timestamps: Mapping[TopicPartition, int], *_: Any) -> Offsets:
        nonlocal end
        named = {EARLIEST: 0, LATEST: end}
        found = {key: named.get(each, each if each < end else -1) for key, each in timestamps.items()}
        end += 10
        return found

    monkeypatch.setattr(source_lookup, "partitions_of", partitions_of)
    monkeypatch.setattr(source_lookup, "offsets_of_partitions", offsets_of_partitions)


def ranges(**options: str) -> list[OffsetRange]:
    found = source_options(GIVEN | options)
    cluster: Any = None
    return asyncio.run(batch_ranges(cluster, found, *check_batch(found)))


@pytest.mark.parametrize("name", ["endingTimestamp", "endingOffsetsByTimestamp"])
@pytest.mark.parametrize(("timestamp", "end"), [(50, 50), (105, 100), (5_000, 100)])
def test_ending_timestamp_of_a_record_after_the_plan_began_is_no_loss(name: str, timestamp: int, end: int) -> None:
    value = str(timestamp) if name == "endingTimestamp" else f'{{"t": {{"0": {timestamp}}}}}'
    assert ranges(**{name: value}) == [(T0, 0, end)]


def test_ending_offset_after_the_log_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="t-0 ends at offset 100, before the ending offset 105"):
        ranges(endingOffsets='{"t": {"0": 105}}')
