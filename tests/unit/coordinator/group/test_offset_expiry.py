"""Expiration of offsets (KIP-211), and deletion of groups without offsets."""

from __future__ import annotations

import pytest

from odradek.coordinator.group.offsets import expiry
from odradek.coordinator.group.offsets.core import on_loaded
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.state import GroupKind
from tests.support.offsets_rig import (
    NOW_MS,
    RETENTION_MS,
    FakeGroup,
    OffsetsRig,
    commit,
    commit_in_transaction,
    fetch,
    fetched,
    group_record,
)

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def rig() -> OffsetsRig:
    return OffsetsRig()


def left(rig: OffsetsRig, group_id: str = "g") -> object:
    return fetched(rig.do(fetch(group_id)))


def test_offset_of_a_simple_group_expires_with_its_group(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1}))
    rig.now_ms += 1
    rig.do(commit("g", {T1: 2}))
    rig.now_ms = NOW_MS + RETENTION_MS - 1
    rig.sweep()
    assert left(rig) == {T0: 1, T1: 2}
    rig.now_ms += 1
    rig.sweep()
    assert left(rig) == {T1: 2}
    assert "g" in rig.state.groups
    rig.now_ms += 1
    rig.sweep()
    assert rig.state.groups == {}
    assert len(rig.batches[-1]) == 2  # the tombstones of the offset and of the group
    assert rig.replayed().offsets == rig.store
    assert rig.replayed().groups == {}


def test_retention_in_an_empty_group_counts_from_when_it_became_empty(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1}))
    rig.group(FakeGroup("g", since_ms=NOW_MS + 1_000))
    rig.now_ms = NOW_MS + RETENTION_MS + 999
    rig.sweep()
    assert left(rig) == {T0: 1}
    rig.now_ms += 1
    rig.sweep()
    assert left(rig) == {}
    assert rig.state.groups == {}


def test_offsets_of_subscribed_topics_never_expire(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1, U0: 2}))
    rig.group(FakeGroup("g", kind=GroupKind.CONSUMER, members=True, topics=("t",)))
    rig.now_ms += 2 * RETENTION_MS
    rig.sweep()
    assert left(rig) == {T0: 1}
    assert "g" in rig.state.groups


def test_offsets_of_a_rebalancing_group_do_not_expire(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1}, version=4, retention_ms=5))
    rig.group(FakeGroup("g", members=True, never=True))
    rig.now_ms += 2 * RETENTION_MS
    rig.sweep()
    assert left(rig) == {T0: 1}


@pytest.mark.parametrize("retention_ms", [5, 2 * RETENTION_MS])
def test_explicit_retention_replaces_the_brokers(rig: OffsetsRig, retention_ms: int) -> None:
    rig.do(commit("g", {T0: 1}, version=3, retention_ms=retention_ms))
    rig.group(FakeGroup("g", since_ms=NOW_MS + 10))
    rig.now_ms = NOW_MS + retention_ms - 1
    rig.sweep()
    assert left(rig) == {T0: 1}
    rig.now_ms += 1
    rig.sweep()
    assert left(rig) == {}


def test_pending_offsets_and_their_group_do_not_expire(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1, T1: 2}))
    rig.do(commit_in_transaction(1, "g", {T0: 3}))
    rig.do(commit_in_transaction(2, "h", {T0: 4}))
    rig.now_ms += 2 * RETENTION_MS
    rig.sweep()
    assert left(rig) == {T0: 1}
    assert rig.state.groups.keys() == {"g", "h"}
    rig.marker(1, commit=True)
    rig.marker(2, commit=True)
    assert (left(rig), left(rig, "h")) == ({T0: 3}, {T0: 4})
    rig.sweep()  # the age counts from the commits, not from the markers
    assert rig.state.groups == {}


def test_marker_recreates_a_group_deleted_during_the_transaction(rig: OffsetsRig) -> None:
    """This core writes no such tombstone, but a log of Kafka may contain one, and a conversion may write one."""
    rig.do(commit_in_transaction(1, "g", {T0: 3}))
    rig.append(group_record("g", members=False))
    for record in rig.state.groups["g"].tombstones():
        rig.append(record)
    assert rig.state.groups == {}
    assert fetched(rig.do(fetch("g", T0, stable=True))) == {T0: "UNSTABLE_OFFSET_COMMIT"}
    rig.marker(1, commit=True)
    assert left(rig) == {T0: 3}
    assert rig.replayed().groups.keys() == {"g"}


def test_offsets_of_a_deleted_group_expire(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 3}))
    rig.append(group_record("g", members=False))
    for record in rig.state.groups["g"].tombstones():
        rig.append(record)
    rig.now_ms += RETENTION_MS
    rig.sweep()
    assert rig.store.count == 0


def test_empty_group_without_offsets_is_deleted_by_the_next_sweep(rig: OffsetsRig) -> None:
    rig.append(group_record("empty", members=False, since_ms=NOW_MS))
    rig.append(group_record("busy", members=True))
    rig.do(commit_in_transaction(1, "aborted", {T0: 1}))
    rig.marker(1, commit=False)
    rig.sweep()
    assert rig.state.groups.keys() == {"busy"}
    assert rig.replayed().groups.keys() == {"busy"}


@pytest.mark.parametrize("bytes_max", [1, 200, 1_000_000])
@pytest.mark.parametrize("examined_max", [1, 7, 1_000])
def test_sweep_is_processed_in_slices(monkeypatch: pytest.MonkeyPatch, bytes_max: int, examined_max: int) -> None:
    monkeypatch.setattr(expiry, "CHECKS_PER_SLICE_MAX", examined_max)
    rig = OffsetsRig(config=GroupConfig(record_batch_bytes_max=bytes_max))
    for group_id in ("g", "h", "i"):
        rig.do(commit(group_id, {(topic, partition): 1 for topic in "tuv" for partition in range(5)}))
    rig.append(group_record("g", members=True, topics="u"))
    rig.now_ms += RETENTION_MS
    rig.do(commit("h", {("t", 2): 9, ("v", 4): 9}))
    rig.do(commit_in_transaction(1, "i", {("u", 3): 9}))
    rig.batches.clear()
    rig.sweep()
    assert left(rig) == {("u", partition): 1 for partition in range(5)}
    assert left(rig, "h") == {("t", 2): 9, ("v", 4): 9}
    assert left(rig, "i") == {("u", 3): 1}
    for batch in rig.batches:
        size = 61 + sum(25 + len(record.key or b"") for record in batch)
        assert len(batch) == 1 or size <= bytes_max
        assert len(batch) <= examined_max + 1
    rig.marker(1, commit=False)
    rig.sweep()
    assert "i" not in rig.state.groups
    assert rig.store.count == 7


def test_changes_between_two_slices_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "CHECKS_PER_SLICE_MAX", 3)
    rig = OffsetsRig()
    rig.do(commit("g", {("t", partition): 1 for partition in range(4)}))
    rig.now_ms += RETENTION_MS
    rig.hold = True
    rig.sweep()
    first = rig.timers.pop("slice of the sweep for expired offsets")
    rig.take(rig.decide(first.command))
    rig.do(commit("g", {("t", 0): 5}))
    rig.hold = False
    rig.take(rig.decide(rig.timers.pop("slice of the sweep for expired offsets").command))
    assert left(rig) == {("t", 0): 5}
    assert "g" in rig.state.groups


def test_sweep_starts_the_timer_of_the_next_one() -> None:
    rig = OffsetsRig(config=GroupConfig(offsets_retention_check_interval_ms=123))
    (timer,) = on_loaded(rig.state, NOW_MS).timers
    assert timer.delay_ms == 123
    decision = rig.decide(timer.command)
    assert decision.timers[0] == timer
    assert decision.records == ()  # a refused append would stop the sweeps


def test_sweep_uses_the_current_retention(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T0: 1}))
    rig.now_ms += 1_000
    rig.configs.set(offsets_retention_ms=1_000)
    rig.sweep()
    assert left(rig) == {}
