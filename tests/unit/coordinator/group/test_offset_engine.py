"""Offsets in an engine: order, high watermark, markers, fail-over, and sweeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.offsets import deletion
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import Marker, ShardRecord
from tests.support.classic_rig import WAITS, EngineRig, join_request, outcome, sync_request
from tests.support.classic_rig import caller as client
from tests.support.offsets_rig import RETENTION_MS, commit, commit_in_transaction, delete, errors, fetch, fetched

T0, T1 = ("t", 0), ("t", 1)
COMMIT, ABORT = Marker(1, 0, 0, commit=True), Marker(1, 0, 0, commit=False)
CHECK_MS = 600_000


def mark(rig: EngineRig, marker: Marker) -> None:
    rig.engine.mark(marker, lambda: rig.log.append_marker(marker))


async def test_fetch_after_a_commit_waits_for_its_high_watermark() -> None:
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {T0: 1}))
    rig.log.lag = True
    fetch_before = rig.submit(fetch("g", T0))
    committed = rig.submit(commit("g", {T0: 2}))
    fetch_after = rig.submit(fetch("g", T0))
    assert fetched(outcome(fetch_before)) == {T0: 1}
    assert (outcome(committed), outcome(fetch_after)) == (WAITS, WAITS)
    rig.log.commit()
    assert errors(outcome(committed)) == {T0: "NONE"}
    assert fetched(outcome(fetch_after)) == {T0: 2}


async def test_fetch_after_a_marker_waits_for_its_high_watermark() -> None:
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {T0: 1}))
    rig.submit(commit_in_transaction(1, "g", {T0: 2}))
    assert fetched(outcome(rig.submit(fetch("g", T0, stable=True)))) == {T0: "UNSTABLE_OFFSET_COMMIT"}
    assert fetched(outcome(rig.submit(fetch("g", T0)))) == {T0: 1}
    rig.log.lag = True
    mark(rig, COMMIT)
    response = rig.submit(fetch("g", T0, stable=True))
    assert outcome(response) == WAITS
    rig.log.commit()
    assert fetched(outcome(response)) == {T0: 2}


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
async def test_pending_offsets_survive_a_failover(marker: Marker) -> None:
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {T0: 1}))
    rig.submit(commit_in_transaction(1, "g", {T0: 2, T1: 3}))
    for _ in range(2):
        rig = await rig.successor()
        assert fetched(outcome(rig.submit(fetch("g", T0, T1, stable=True)))) == dict.fromkeys(
            (T0, T1), "UNSTABLE_OFFSET_COMMIT"
        )
    mark(rig, marker)
    rig = await rig.successor()
    expected = {T0: 2, T1: 3} if marker.commit else {T0: 1, T1: -1}
    assert fetched(outcome(rig.submit(fetch("g", T0, T1, stable=True)))) == expected


async def test_refused_append_commits_no_offset() -> None:
    rig = await EngineRig().loaded()
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert outcome(rig.submit(commit("g", {T0: 1}))) == "COORDINATOR_NOT_AVAILABLE"
    rig.log.refuse = ErrorCode.INVALID_PRODUCER_EPOCH
    assert outcome(rig.submit(commit_in_transaction(1, "g", {T0: 1}))) == "INVALID_PRODUCER_EPOCH"
    rig.log.refuse = None
    assert fetched(outcome(rig.submit(fetch("g", T0, stable=True)))) == {T0: -1}
    assert rig.core.state.groups == {}


async def test_offsets_and_groups_expire() -> None:
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {T0: 1}))
    rig.wait(RETENTION_MS - CHECK_MS // 2)
    rig.submit(commit("h", {T0: 2}))
    rig.submit(commit_in_transaction(1, "i", {T0: 3}))
    rig.wait(CHECK_MS)
    assert rig.core.state.groups.keys() == {"h", "i"}
    rig.wait(RETENTION_MS)
    assert rig.core.state.groups.keys() == {"i"}
    mark(rig, COMMIT)
    rig = await rig.successor()
    rig.wait(CHECK_MS)
    assert rig.core.state.groups == {}
    assert rig.core.state.offsets.count == 0
    assert rig.failures == []


async def test_refused_tombstones_do_not_stop_the_sweeps() -> None:
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {T0: 1}))
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.wait(RETENTION_MS + 10 * CHECK_MS)
    assert rig.core.state.groups.keys() == {"g"}
    rig.log.refuse = None
    rig.wait(CHECK_MS)
    assert rig.core.state.groups == {}


async def test_offset_commit_extends_the_session() -> None:
    rig = await EngineRig(group_initial_rebalance_delay_ms=0).loaded()
    rig.submit(c.JoinGroup(join_request(session_ms=10_000), client(3), 1))
    rig.wait(0)
    member = rig.responses[1].member_id
    rig.submit(c.SyncGroup(sync_request(member, 1, {member: b""}), client(5), 2))
    for offset in range(4):
        rig.wait(9_000)
        future = rig.submit(commit("g", {T0: offset}, generation=1, member_id=member))
        assert errors(outcome(future)) == {T0: "NONE"}
    rig.wait(10_000)
    assert outcome(rig.submit(commit("g", {T0: 9}, generation=1, member_id=member))) == "UNKNOWN_MEMBER_ID"
    assert fetched(outcome(rig.submit(fetch("g", T0)))) == {T0: 3}


async def test_each_batch_of_a_large_deletion_waits_for_the_commit_of_the_previous_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", 4)
    rig = await EngineRig().loaded()
    rig.submit(commit("g", {("t", partition): 1 for partition in range(10)}))
    rig.log.lag = True
    rig.log.batches.clear()
    deleted = rig.submit(c.DeleteGroup("g"))
    repeated = rig.submit(c.DeleteGroup("g"))
    rig.wait(0)
    assert [len(batch) for batch in rig.log.batches] == [4, 4]
    rig.log.commit()
    assert [len(batch) for batch in rig.log.batches] == [4, 4, 3]
    assert (outcome(deleted), outcome(repeated)) == (WAITS, WAITS)
    rig.log.commit()
    assert outcome(deleted) is None
    assert outcome(repeated) == "GROUP_ID_NOT_FOUND"
    assert rig.core.state.groups == {}
    assert rig.engine.waiting == rig.engine.uncommitted == 0


async def test_join_during_a_large_deletion_keeps_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", 4)
    rig = await EngineRig(group_initial_rebalance_delay_ms=0).loaded()
    rig.submit(commit("g", {("t", partition): 1 for partition in range(10)}))
    deleted = rig.submit(c.DeleteGroup("g"))
    rig.submit(c.JoinGroup(join_request(), client(3), 1))
    rig.wait(0)
    assert outcome(deleted) == "NON_EMPTY_GROUP"
    assert rig.core.state.groups.keys() == {"g"}


async def test_offsets_of_deleted_topics_are_deleted_in_the_background() -> None:
    rig = await EngineRig().loaded()
    for group_id in ("g", "h"):
        rig.submit(commit(group_id, {T0: 1, ("u", 0): 2}))
    assert outcome(rig.submit(c.TopicsDeleted((c.DeletedTopic(bytes(15) + b"\1", "t"),)))) is None
    rig.wait(0)
    for group_id in ("g", "h"):
        assert fetched(outcome(rig.submit(fetch(group_id)))) == {("u", 0): 2}
    assert errors(outcome(rig.submit(delete("g", ("u", 0))))) == {("u", 0): "NONE"}
    assert rig.failures == []


async def test_unreadable_offset_record_blocks_its_group_alone_until_a_readable_record_replaces_it() -> None:
    rig = await EngineRig().loaded()
    for group in ("g", "h"):
        rig.submit(commit(group, {T0: 1}))
    offset, record, epoch = rig.log.entries[0]
    assert isinstance(record, ShardRecord)
    rig.log.entries[0] = (offset, replace(record, value=b"\0\4\1", memo=None), epoch)
    rig = await rig.successor()
    assert outcome(rig.submit(fetch("g", T0))) == "COORDINATOR_NOT_AVAILABLE"
    assert outcome(rig.submit(commit("g", {T1: 1}))) == "COORDINATOR_NOT_AVAILABLE"
    assert fetched(outcome(rig.submit(fetch("h", T0)))) == {T0: 1}
    rig.log.append([replace(record, memo=None)], 0)
    rig = await rig.successor()
    assert fetched(outcome(rig.submit(fetch("g", T0)))) == {T0: 1}
