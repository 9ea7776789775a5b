"""Partition registry: the slices in which large changes are applied, and the rests between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.broker.partition import registry
from odradek.broker.partition.registry import (
    CREATE_LOG_COST,
    CREATION_REST_FACTOR,
    CREATION_S,
    LOG_SLICE_US_MAX,
    REST_FACTOR,
    ROLE_CHANGES_PER_SLICE,
    SLICE_US_MAX,
)
from odradek.protocol.records.metadata import PartitionChangeRecord, RemoveTopicRecord
from odradek.runtime.rest import Pace
from tests.support.data_rig import NODE, Rig

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from odradek.broker.partition.partition import Partition
    from odradek.storage.log.log import PartitionLog

LOGS_PER_SLICE = ROLE_CHANGES_PER_SLICE // CREATE_LOG_COST


class NoListener:
    """Listener of a coordinator's topic that ignores leaderships."""

    def elected(self, partition: Partition) -> None:
        """Ignore it."""

    def resigned(self, partition: Partition) -> None:
        """Ignore it."""


async def test_slice_ends_early_when_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    create = rig.logs.create

    def slow(*arguments: Any) -> PartitionLog:
        rig.clock.now_ms += LOG_SLICE_US_MAX // 1_000
        return create(*arguments)

    monkeypatch.setattr(rig.logs, "create", slow)
    rig.topic("t", 5)
    assert rig.partitions.count == 1
    await rig.changes_applied()
    assert rig.partitions.count == 5


async def test_slice_of_role_changes_may_take_longer(tmp_path: Path) -> None:
    """Role changes have no rests. With shorter slices, a fail-over would need more turns of the event loop."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", 5)

    def elected(partition: Partition) -> None:
        rig.clock.now_ms += LOG_SLICE_US_MAX // 1_000

    rig.partitions.on_elected(elected)
    rig.play(*(PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=NODE) for index in range(5)))
    epochs = [partition.leader_epoch for partition in rig.partitions.hosted("t")]
    assert epochs.count(1) == SLICE_US_MAX // LOG_SLICE_US_MAX
    await rig.changes_applied()
    assert {partition.leader_epoch for partition in rig.partitions.hosted("t")} == {1}


def recorded_rests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that receives "rest" and "resume". A rest that follows "resume" has no length."""
    return recorded_paces(monkeypatch)[0]


def recorded_paces(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[float | None]]:
    """Return the list that receives "rest" and "resume", and the list that receives the factor of each rest."""
    events: list[str] = []
    factors: list[float | None] = []

    class RecordedPace(Pace):
        def resume(self) -> None:
            events.append("resume")

        async def rest(self, factor: float | None = None) -> None:
            events.append("rest")
            factors.append(factor)
            await asyncio.sleep(0)

    monkeypatch.setattr(registry, "Pace", RecordedPace)
    return events, factors


async def test_only_slices_that_create_or_delete_logs_have_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the partitions of a failed broker would wait for their new leaders."""
    events = recorded_rests(monkeypatch)
    rig = Rig(tmp_path)
    count = ROLE_CHANGES_PER_SLICE + 1
    topic_id = rig.topic("t", count)
    await rig.changes_applied()
    assert events == ["resume"] + ["rest"] * (count // LOGS_PER_SLICE)
    events.clear()
    rig.play(*(PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=NODE + 1) for index in range(count)))
    await rig.changes_applied()
    assert events == ["resume", "rest", "resume"]
    events.clear()
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    await rig.changes_applied()
    assert events == ["resume"] + ["rest"] * (count // LOGS_PER_SLICE)


async def test_role_changes_are_applied_before_logs_are_created_and_deleted(tmp_path: Path) -> None:
    """Otherwise the partitions of a failed broker have no leader for seconds."""
    rig = Rig(tmp_path)
    hosted = rig.topic("hosted", ROLE_CHANGES_PER_SLICE + 1)
    deleted = rig.topic("deleted", 3 * LOGS_PER_SLICE, number=101)
    await rig.changes_applied()
    rig.play(RemoveTopicRecord(topic_id=deleted))
    rig.topic("new", 3 * LOGS_PER_SLICE, number=102)
    before = (rig.partitions.count, len(rig.logs.deleted))
    changes = (
        PartitionChangeRecord(topic_id=hosted, partition_id=index, leader=NODE + 1)
        for index in range(ROLE_CHANGES_PER_SLICE + 1)
    )
    rig.play(*changes)
    while any(partition.leads for partition in rig.partitions.hosted("hosted")):
        assert (rig.partitions.count, len(rig.logs.deleted)) == before
        await asyncio.sleep(0)
    await rig.changes_applied()
    assert len(rig.logs.deleted) == 3 * LOGS_PER_SLICE
    assert rig.partitions.count == ROLE_CHANGES_PER_SLICE + 1 + 3 * LOGS_PER_SLICE


async def test_slices_before_those_of_coordinators_have_no_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded_rests(monkeypatch)
    rig = Rig(tmp_path)
    rig.partitions.listen("__consumer_offsets", NoListener())
    rig.topic("__consumer_offsets", 3 * LOGS_PER_SLICE, number=101)
    await rig.changes_applied()
    assert events == ["resume", "rest", "resume", "rest"]


async def test_rests_are_longer_while_a_client_creates_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery of their records takes a third of the event loop. With usual rests, other clients wait longer."""
    _, factors = recorded_paces(monkeypatch)
    rig = Rig(tmp_path)
    rig.topic("first", 3 * LOGS_PER_SLICE)
    task = rig.tasks.pop()
    assert factors == []
    rig.clock.now_ms += round(CREATION_S * 1_000) - 1
    rig.topic("second", 2 * LOGS_PER_SLICE, number=101)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert set(factors) == {CREATION_REST_FACTOR}
    rig.clock.now_ms += 1
    rig.topic("small", LOGS_PER_SLICE, number=102)
    rig.clock.now_ms += round(CREATION_S * 1_000) - 1
    factors.clear()
    await task
    assert set(factors) == {REST_FACTOR}
    assert rig.partitions.count == 6 * LOGS_PER_SLICE


async def test_creation_that_fits_into_one_slice_does_not_lengthen_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, factors = recorded_paces(monkeypatch)
    rig = Rig(tmp_path)
    first = rig.topic("first", LOGS_PER_SLICE)
    second = rig.topic("second", LOGS_PER_SLICE, number=101)
    rig.play(RemoveTopicRecord(topic_id=first), RemoveTopicRecord(topic_id=second))
    await rig.changes_applied()
    assert factors == [REST_FACTOR]
    assert rig.partitions.count == 0


async def test_new_partitions_that_arrive_during_a_rest_wait_for_its_end(tmp_path: Path) -> None:
    """A slice at the end of each delivery would lengthen the callback of the delivery, and shorten the rests."""
    rig = Rig(tmp_path)
    rig.topic("first", 2 * LOGS_PER_SLICE)
    assert rig.partitions.count == LOGS_PER_SLICE
    rig.topic("second", 1, number=101)
    assert rig.partitions.count == LOGS_PER_SLICE
    assert rig.partitions.find("second", 0).leads
    await rig.changes_applied()
    assert rig.partitions.count == 2 * LOGS_PER_SLICE + 1


async def test_urgent_changes_do_not_wait_for_the_end_of_a_rest(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.partitions.listen("__consumer_offsets", NoListener())
    topic_id = rig.topic("first", 2 * LOGS_PER_SLICE)
    rig.topic("__consumer_offsets", 1, number=101)
    assert rig.partitions.get("__consumer_offsets", 0) is not None
    rig.play(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=NODE + 1))
    assert not rig.partition("first", 0).leads
    assert rig.partitions.count == LOGS_PER_SLICE + 1, "the other new partitions wait"
    await rig.changes_applied()
