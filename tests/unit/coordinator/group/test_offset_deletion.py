"""OffsetDelete, DeleteGroups, deleted topics, and the list of groups."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.offsets import deletion
from odradek.coordinator.group.offsets.records import tombstone
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.state import GroupKind
from odradek.protocol.errors import ErrorCode
from tests.support.offsets_rig import (
    FakeGroup,
    OffsetsRig,
    commit,
    commit_in_transaction,
    delete,
    errors,
    fetch,
    fetched,
    offset_of,
)

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
T_ID, OTHER_ID = UUID(int=7), UUID(int=8)


@pytest.fixture
def rig() -> OffsetsRig:
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 10, T1: 11, U0: 20}))
    return rig


def tombstones(rig: OffsetsRig) -> int:
    return sum(record.value is None for batch in rig.batches for record in batch)


# ---- OffsetDelete ---------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_by_tombstones(rig: OffsetsRig) -> None:
    assert errors(rig.do(delete("g", T0, ("t", 5), U0))) == {T0: "NONE", ("t", 5): "NONE", U0: "NONE"}
    assert fetched(rig.do(fetch("g"))) == {T1: 11}
    assert tombstones(rig) == 2
    assert rig.replayed().offsets == rig.store


def test_duplicate_partition_in_a_request_is_deleted_once(rig: OffsetsRig) -> None:
    command = delete("g", T0)
    command.request.topics[0].partitions *= 2
    rig.do(command)
    assert tombstones(rig) == 1


def test_offsets_of_subscribed_topics_are_not_deleted(rig: OffsetsRig) -> None:
    rig.group(FakeGroup("g", members=True, topics=("t",)))
    assert errors(rig.do(delete("g", T0, U0))) == {T0: "GROUP_SUBSCRIBED_TO_TOPIC", U0: "NONE"}
    assert fetched(rig.do(fetch("g"))) == {T0: 10, T1: 11}


def test_group_checks_the_deletion_of_offsets(rig: OffsetsRig) -> None:
    rig.group(FakeGroup("g", refuses={"delete offsets": ErrorCode.NON_EMPTY_GROUP}))
    assert rig.do(delete("g", T0)) == "NON_EMPTY_GROUP"
    assert rig.do(delete("unknown-group", T0)) == "GROUP_ID_NOT_FOUND"
    assert tombstones(rig) == 0


def test_pending_offsets_are_not_deleted(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T0: 99}))
    assert errors(rig.do(delete("g", T0, T1))) == {T0: "UNSTABLE_OFFSET_COMMIT", T1: "NONE"}
    rig.marker(1, commit=True)
    assert fetched(rig.do(fetch("g", T0, T1))) == {T0: 99, T1: -1}
    assert errors(rig.do(delete("g", T0))) == {T0: "NONE"}


def test_tombstone_in_the_log_removes_pending_offsets() -> None:
    """Kafka's brokers write such tombstones. Their logs must have the same meaning here."""
    rig = OffsetsRig()
    rig.do(commit("g", {T0: 1}))
    for producer_id in (1, 2):
        rig.do(commit_in_transaction(producer_id, "g", {T0: 5, T1: 6}))
    rig.append(tombstone(("g", "t", 0)))
    assert rig.store.pending_count == 2
    assert not rig.store.is_pending("g", "t", 0)
    assert rig.replayed().offsets == rig.store
    rig.marker(1, commit=True)
    rig.marker(2, commit=False)
    assert fetched(rig.do(fetch("g", T0, T1, stable=True))) == {T0: -1, T1: 6}
    assert (rig.store.pending, rig.store.open) == ({}, {})


# ---- DeleteGroups ---------------------------------------------------------------------------------------------------


def test_group_and_its_offsets_are_deleted_in_one_batch(rig: OffsetsRig) -> None:
    assert rig.do(c.DeleteGroup("g")) is None
    assert len(rig.batches[-1]) == 4
    assert rig.store.count == 0
    assert rig.state.groups == {}
    assert rig.replayed().offsets == rig.store
    assert rig.do(c.DeleteGroup("g")) == "GROUP_ID_NOT_FOUND"


def test_group_checks_its_deletion(rig: OffsetsRig) -> None:
    rig.group(FakeGroup("g", members=True))
    assert rig.do(c.DeleteGroup("g")) == "NON_EMPTY_GROUP"
    assert fetched(rig.do(fetch("g"))) == {T0: 10, T1: 11, U0: 20}


def test_group_with_pending_offsets_is_not_deleted(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "h", {T0: 99}))
    assert rig.do(c.DeleteGroup("h")) == "NON_EMPTY_GROUP"
    rig.marker(1, commit=True)
    assert offset_of(rig, "h", "t", 0) == 99
    assert rig.do(c.DeleteGroup("h")) is None


@pytest.mark.parametrize(("bytes_max", "examined_max"), [(400, 1_000), (1_000_000, 5), (1, 1_000)])
def test_large_group_is_deleted_in_several_batches(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, examined_max: int
) -> None:
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", examined_max)
    rig = OffsetsRig(config=GroupConfig(record_batch_bytes_max=bytes_max))
    rig.do(commit("g", {("t", partition): partition for partition in range(23)}))
    rig.do(commit("h", {T0: 1}))
    rig.batches.clear()
    assert rig.do(c.DeleteGroup("g")) is None
    assert tombstones(rig) == 24
    assert len(rig.batches) >= 3
    assert rig.state.groups.keys() == {"h"}
    assert rig.store.count == 1
    for batch in rig.batches:
        size = 61 + sum(25 + len(record.key or b"") for record in batch)
        assert len(batch) == 1 or size <= bytes_max


# ---- deleted topics -------------------------------------------------------------------------------------------------


def gone(name: str = "t", topic_id: UUID = T_ID) -> c.TopicsDeleted:
    return c.TopicsDeleted((c.DeletedTopic(topic_id.bytes, name),))


def test_offsets_of_a_deleted_topic_are_deleted_in_all_groups(rig: OffsetsRig) -> None:
    rig.do(commit("h", {T0: 1, U0: 2}, topic_id=T_ID))
    rig.do(commit("i", {T0: 1}, topic_id=OTHER_ID))
    assert rig.do(gone()) is None
    assert [fetched(rig.do(fetch(group))) for group in "ghi"] == [{U0: 20}, {U0: 2}, {T0: 1}]
    assert rig.replayed().offsets == rig.store


def test_pending_offsets_of_a_deleted_topic_are_deleted(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T0: 99, U0: 98}))
    rig.do(commit_in_transaction(2, "h", {T1: 97}))
    rig.batches.clear()
    rig.do(gone())
    assert tombstones(rig) == 3
    rig.marker(1, commit=True)
    rig.marker(2, commit=True)
    assert fetched(rig.do(fetch("g"))) == {U0: 98}
    assert fetched(rig.do(fetch("h"))) == {}


def test_offsets_of_a_newer_topic_with_the_same_name_stay(rig: OffsetsRig) -> None:
    """The deletion is done in slices. A new topic of the same name can get offsets before the last slice."""
    rig.hold = True
    rig.do(gone())
    rig.do(commit("g", {T0: 3}, topic_id=OTHER_ID))
    rig.do(commit("h", {T0: 4}))
    rig.do(commit_in_transaction(1, "g", {T1: 5}))
    rig.hold = False
    rig.take(rig.decide(delete("g", U0)))
    rig.marker(1, commit=True)
    assert fetched(rig.do(fetch("g"))) == {T0: 3, T1: 5}
    assert fetched(rig.do(fetch("h"))) == {T0: 4}


@pytest.mark.parametrize(("bytes_max", "examined_max"), [(300, 1_000), (1_000_000, 3)])
def test_many_offsets_are_deleted_in_slices(monkeypatch: pytest.MonkeyPatch, bytes_max: int, examined_max: int) -> None:
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", examined_max)
    rig = OffsetsRig(config=GroupConfig(record_batch_bytes_max=bytes_max))
    for group_id in ("g", "h", "i"):
        rig.do(commit(group_id, {("t", partition): 1 for partition in range(9)} | {U0: 2}))
    rig.batches.clear()
    rig.do(gone())
    assert tombstones(rig) == 27
    assert len(rig.batches) >= 3
    assert rig.store.count == 3


# ---- ListGroups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], "abc"),
        (["stable"], [], "b"),
        (["stable", "empty"], [], "bc"),
        (["preparingrebalance"], [], "a"),
        (["nonsense"], [], ""),
        ([], ["consumer"], "b"),
        ([], ["classic"], "ac"),
        ([], ["share"], ""),
        (["empty"], ["consumer"], ""),
        (["empty", "stable"], ["consumer"], "b"),
    ],
)
def test_groups_are_listed_by_state_and_type(states: list[str], types: list[str], found: str) -> None:
    rig = OffsetsRig()
    rig.group(FakeGroup("a", state_name="PreparingRebalance", members=True))
    rig.group(FakeGroup("b", state_name="Stable", kind=GroupKind.CONSUMER, members=True))
    rig.do(commit("c", {T0: 1}))
    listed = rig.do(c.ListGroups(frozenset(states), frozenset(types)))
    assert "".join(sorted(group.group_id for group in listed)) == found
    for group in listed:
        assert group.group_type == ("consumer" if group.group_id == "b" else "classic")
        assert group.protocol_type == ("" if group.group_id == "c" else "consumer")
