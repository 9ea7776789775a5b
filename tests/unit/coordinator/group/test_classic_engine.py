"""Classic groups in an engine: the responses, and when they are sent."""

from __future__ import annotations

from typing import Any

from odradek.coordinator.group import commands as c
from odradek.protocol.errors import ErrorCode
from tests.support.classic_rig import EngineRig, caller, join_request, outcome, sync_request


async def test_two_members_join_sync_and_one_leaves() -> None:
    rig = await EngineRig().loaded()
    assert outcome(rig.submit(c.JoinGroup(join_request(), caller(3, "a"), 1))) is c.WAITING
    assert outcome(rig.submit(c.JoinGroup(join_request(), caller(3, "b"), 2))) is c.WAITING
    rig.wait(6_000)
    a, b = rig.responses.pop(1), rig.responses.pop(2)
    assert (a.member_id, b.member_id, a.generation_id) == ("a-1", "b-2", 1)
    assert [member.member_id for member in a.members] == ["a-1", "b-2"]
    assert b.members == []
    assert outcome(rig.submit(c.SyncGroup(sync_request("b-2", 1), caller(5), 3))) is c.WAITING
    assert rig.responses == {}
    reply = outcome(rig.submit(c.SyncGroup(sync_request("a-1", 1, {"a-1": b"x", "b-2": b"y"}), caller(5), 4)))
    assert reply.assignment == b"x"
    assert rig.responses[3].assignment == b"y"
    assert rig.failures == []


async def test_sync_group_response_waits_for_the_commit() -> None:
    rig = await EngineRig(group_initial_rebalance_delay_ms=0).loaded()
    joined = rig.submit(c.JoinGroup(join_request(), caller(3), 1))
    rig.wait(0)
    assert outcome(joined) is c.WAITING
    rig.log.lag = True
    synced = rig.submit(c.SyncGroup(sync_request(rig.responses[1].member_id, 1, {}), caller(5), 2))
    assert outcome(synced) == "waits"
    rig.log.commit()
    assert outcome(synced).error_code == ErrorCode.NONE


async def test_refused_append_of_the_assignment_leaves_the_group_unchanged() -> None:
    rig = await EngineRig(group_initial_rebalance_delay_ms=0).loaded()
    rig.submit(c.JoinGroup(join_request(), caller(3), 1))
    rig.wait(0)
    member = rig.responses[1].member_id
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    command: Any = c.SyncGroup(sync_request(member, 1, {member: b"x"}), caller(5), 2)
    assert outcome(rig.submit(command)) == "COORDINATOR_NOT_AVAILABLE"
    assert rig.core.state.groups["g"].state_name == "CompletingRebalance"
    rig.log.refuse = None
    assert outcome(rig.submit(command)).assignment == b"x"
    assert rig.core.state.groups["g"].state_name == "Stable"
