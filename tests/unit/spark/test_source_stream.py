"""Offsets of the streaming reader: the first batch of a query, limits, ends that went back. Leaders are fake."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import LATEST, TopicPartition
from odradek.spark import source_reader
from odradek.spark.errors import DataLoss
from odradek.spark.source_lookup import Resolved
from odradek.spark.source_options import AtTimestamp, Everywhere, source_options
from odradek.spark.source_reader import SourceStreamReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from odradek.spark.source_offsets import Offsets

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


@dataclass
class ReadAllAvailable:
    """The limit of pyspark 4.2 of this name."""


@dataclass
class FakeLog:
    """Ends and begins that the leaders return. `ends` are used one after the other; the last one remains."""

    ends: list[Offsets]
    begins: Offsets = field(default_factory=dict)

    def install(self, patch: pytest.MonkeyPatch) -> FakeLog:
        for name in ("partitions_of", "ends_of", "begins_of", "start_of"):
            patch.setattr(source_reader, name, getattr(self, name))
        patch.setattr(source_reader, "connection", self.connection)
        return self

    @asynccontextmanager
    async def connection(self, options: object) -> AsyncIterator[None]:
        yield None

    async def partitions_of(self, cluster: object, options: object, *, all_exist: bool) -> list[TopicPartition]:
        return sorted(self.ends[0])

    async def ends_of(self, cluster: object, options: object, partitions: object) -> Offsets:
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    async def begins_of(self, cluster: object, partitions: Iterable[TopicPartition]) -> Offsets:
        return {key: self.begins[key] for key in partitions if key in self.begins}

    async def start_of(self, cluster: object, options: object, bound: object, partitions: object) -> Resolved:
        if bound == Everywhere(LATEST):
            return Resolved(dict(self.ends[0]), frozenset(self.ends[0]))
        floating = self.ends[0] if isinstance(bound, AtTimestamp) else ()
        return Resolved({key: self.begins.get(key, 0) for key in self.ends[0]}, frozenset(floating))


def reader(**options: str) -> SourceStreamReader:
    return SourceStreamReader(source_options(GIVEN | options))


def wanted(planned: Iterable[Any]) -> list[tuple[TopicPartition, int, int]]:
    return [tuple(each.wanted) for each in planned]


def test_start_at_latest_is_the_first_end_that_spark_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pyspark 4.0, `latestOffset` comes first. Records between both calls belong to the second batch."""
    log = FakeLog([{T0: 5}]).install(monkeypatch)
    stream = reader()
    assert stream.latestOffset() == {"t": {"0": 5}}
    log.ends = [{T0: 9}]
    assert stream.initialOffset() == {"t": {"0": 5}}
    assert stream.partitions({"t": {"0": 5}}, {"t": {"0": 5}}) == []
    assert stream.latestOffset() == {"t": {"0": 9}}
    assert wanted(stream.partitions({"t": {"0": 5}}, {"t": {"0": 9}})) == [(T0, 5, 9)]


def test_first_end_is_the_start_at_latest_if_spark_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog([{T0: 5}]).install(monkeypatch)
    stream = reader()
    start = stream.initialOffset()
    log.ends = [{T0: 9}]
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    assert stream.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 9}}


def test_first_batch_from_earliest_has_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeLog([{T0: 5}]).install(monkeypatch)
    stream = reader(startingOffsets="earliest")
    assert (stream.latestOffset(), stream.initialOffset()) == ({"t": {"0": 5}}, {"t": {"0": 0}})
    assert wanted(stream.partitions({"t": {"0": 0}}, {"t": {"0": 5}})) == [(T0, 0, 5)]


def test_first_batch_that_is_repeated_is_empty_and_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is that of the earlier run. The start is later, and the topic has one more partition."""
    FakeLog([{T0: 9, T1: 2}], {T0: 0, T1: 0}).install(monkeypatch)
    stream = reader()
    assert stream.partitions(stream.initialOffset(), {"t": {"0": 5}}) == []


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_partition_that_is_deleted_before_the_first_batch_is_a_loss(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FakeLog([{T0: 5, T1: 2}], {T0: 0}).install(monkeypatch)
    stream = reader(startingOffsets=start)
    initial = stream.initialOffset()
    log.ends = [{T0: 5}]
    with pytest.raises(DataLoss, match="t-1 do not exist any more"):
        stream.partitions(initial, stream.latestOffset())


def test_end_that_went_back_later_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeLog([{T0: 9}]).install(monkeypatch)
    with pytest.raises(DataLoss, match="the end of t-0 went back from 12 to 9; to continue without them"):
        reader().partitions({"t": {"0": 12}}, {"t": {"0": 9}})
    with pytest.warns(UserWarning, match="the end of t-0 went back"):
        assert reader(failOnDataLoss="false").partitions({"t": {"0": 12}}, {"t": {"0": 9}}) == []


def test_end_that_went_back_after_an_empty_first_batch_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch has the begin of the first one. The topic was deleted, and created again with fewer records."""
    log = FakeLog([{T0: 9}]).install(monkeypatch)
    stream = reader()
    start = stream.initialOffset()
    for _ in range(2):  # Spark may plan a batch again
        assert stream.partitions(start, stream.latestOffset()) == []
    log.ends = [{T0: 3}]
    with pytest.raises(DataLoss, match="the end of t-0 went back from 9 to 3"):
        stream.partitions(start, {"t": {"0": 3}})


def test_end_that_went_back_for_a_moment_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog([{T0: 9}]).install(monkeypatch)
    stream = reader()
    stream.partitions({"t": {"0": 0}}, {"t": {"0": 9}})
    log.ends = [{T0: 7}, {T0: 11}]
    assert stream.latestOffset() == {"t": {"0": 11}}


def test_limits_hold_unless_the_trigger_excludes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeLog([{T0: 100, T1: 50}], {T1: 10}).install(monkeypatch)
    stream = reader(maxOffsetsPerTrigger="28", startingOffsets="earliest")
    start = {"t": {"0": 0}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 100, "1": 50}}
    assert stream.latestOffset(start, object()) == {"t": {"0": 20, "1": 18}}


def test_batch_waits_for_the_minimum_or_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog([{T0: 1}]).install(monkeypatch)
    now = [100.0]
    monkeypatch.setattr("odradek.spark.source_reader.time.monotonic", lambda: now[0])
    stream = reader(minOffsetsPerTrigger="10", maxTriggerDelay="30s", startingOffsets="earliest")
    first, second = {"t": {"0": 0}}, {"t": {"0": 1}}
    assert stream.latestOffset(first, object()) == second  # the first batch does not wait
    log.ends = [{T0: 5}]
    assert stream.latestOffset(second, object()) == second
    now[0] += 30
    assert stream.latestOffset(second, object()) == {"t": {"0": 5}}
    log.ends = [{T0: 15}]
    assert stream.latestOffset({"t": {"0": 5}}, object()) == {"t": {"0": 15}}


def test_available_now_ends_where_the_log_ended_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog([{T0: 5}]).install(monkeypatch)
    stream = reader(startingOffsets="earliest", minOffsetsPerTrigger="100")
    stream.prepareForTriggerAvailableNow()
    log.ends = [{T0: 9}]
    start = stream.initialOffset()
    assert stream.latestOffset(start, object()) == {"t": {"0": 5}}
    assert stream.latestOffset({"t": {"0": 5}}, object()) == {"t": {"0": 5}}
    assert stream.reportLatestOffset() == {"t": {"0": 5}}


def test_available_now_reads_to_its_end_after_a_repeated_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run planned the first batch from a start timestamp, which is empty, and did not complete it."""
    FakeLog([{T0: 9}], {T0: 3}).install(monkeypatch)
    stream = reader(startingTimestamp="1700000000000")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    assert stream.partitions(start, {"t": {"0": 3}}) == []
    assert stream.latestOffset({"t": {"0": 3}}, ReadAllAvailable()) == {"t": {"0": 9}}
