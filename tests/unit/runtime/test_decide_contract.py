"""`decide` of every core leaves its shard unchanged, also if it raises at its last line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import odradek.cluster.controller.core
import odradek.coordinator.group.classic.membership
import odradek.coordinator.group.modern.heartbeat
import odradek.coordinator.group.offsets.commit
import odradek.coordinator.txn.core
from odradek.cluster.controller.commands import Heartbeat
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.coordinator.group import commands as g
from odradek.coordinator.txn import commands as t
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import Decision, ShardRecord
from tests.support.cells import Cells, Rig, refused
from tests.support.classic_rig import GROUP, ClassicRig, EngineRig, caller, join_request, outcome
from tests.support.modern_rig import ModernRig
from tests.support.offsets_rig import commit
from tests.support.pure_decisions import ImpureDecision, PureDecisions, decisions_checked, snapshot
from tests.support.raft_memory import ControllerRig
from tests.support.txn_rig import ID, NOW_MS, PID, CoreRig, transaction

if TYPE_CHECKING:
    from collections.abc import Callable

Case = tuple[Any, Any, Any, str]
"""Core, a command that changes it, the module of its decision, and the last function called there."""


class LateBug(Exception):
    pass


def leave(member_id: str) -> g.LeaveGroup:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id)])
    return g.LeaveGroup(request, caller(5))


def classic() -> Case:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    first, _ = rig.stable(None, None)
    return rig.core, leave(first), odradek.coordinator.group.classic.membership, "continue_rebalance"


def consumer() -> Case:
    rig = ModernRig()
    rig.topics.make("t", 4)
    sent: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rig, "do", sent.append)  # the command, not its decision
        rig.beat("A", 0, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    return rig.core, sent[0], odradek.coordinator.group.modern.heartbeat, "ConsumerGroupHeartbeatResponse"


def offsets() -> Case:
    rig = ClassicRig()
    return (
        rig.core,
        commit("g", {("t", 0): 1, ("t", 1): 2}),
        odradek.coordinator.group.offsets.commit,
        "OffsetCommitResponse",
    )


def transactions() -> Case:
    rig = CoreRig(transaction(TxnState.ONGOING))
    return rig.core, t.EndTransaction(ID, PID, 5, commit=True), odradek.coordinator.txn.core, "check_step"


def controller() -> Case:
    rig = ControllerRig().with_brokers(1, 2)
    epoch = rig.core.state.image.brokers[2].epoch
    beat = Heartbeat(BrokerHeartbeat(2, epoch, len(rig.log), want_fence=False, want_shut_down=False), at_ms=9_000)
    return rig.core, beat, odradek.cluster.controller.core, "_losses"


@pytest.mark.parametrize("case", [classic, consumer, offsets, transactions, controller])
def test_exception_late_in_a_decision_leaves_the_shard_unchanged(
    case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    core, command, module, last = case()
    before = snapshot(core)

    def fail(*args: object, **named: object) -> None:
        raise LateBug

    monkeypatch.setattr(module, last, fail)
    with pytest.raises(LateBug):
        core.decide(command, NOW_MS)
    assert snapshot(core) == before


@pytest.mark.parametrize("case", [classic, consumer, offsets, transactions, controller])
def test_decision_that_is_not_carried_out_leaves_the_shard_unchanged(case: Callable[[], Case]) -> None:
    core, command, _, _ = case()
    before = snapshot(core)
    decision = core.decide(command, NOW_MS)
    assert decision.records or decision.soft
    assert snapshot(core) == before


async def test_member_of_a_group_survives_a_bug_in_the_decision_that_removes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = await EngineRig(group_initial_rebalance_delay_ms=0).loaded()
    rig.submit(g.JoinGroup(join_request(), caller(3), 1))
    rig.wait(0)
    member_id = rig.responses[1].member_id

    def fail(*args: object) -> None:
        raise LateBug

    with monkeypatch.context() as patched:
        patched.setattr(odradek.coordinator.group.classic.membership, "continue_rebalance", fail)
        assert outcome(rig.submit(leave(member_id))) == "UNKNOWN_SERVER_ERROR"
    assert [type(failure) for failure in rig.failures] == [LateBug]
    beat = g.Heartbeat(HeartbeatRequest(GROUP, 1, member_id), caller(4))
    assert outcome(rig.submit(beat)).error_code == 0
    assert outcome(rig.submit(leave(member_id))).members[0].error_code == 0
    assert rig.core.state.groups[GROUP].is_empty


def test_check_names_the_decision_and_the_change() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    rig.stable(None)

    def decide(core: Any, command: Any, now_ms: int) -> None:
        core.state.groups[GROUP].members.clear()

    with pytest.raises(ImpureDecision, match=r"LeaveGroup has changed .*/groups/BoundedIdDict/.*/members"):
        PureDecisions(every=1).decide(rig.core, leave("a"), rig.now_ms, decide)


def test_check_of_all_shards_ends_with_its_context() -> None:
    rig = ClassicRig(group_initial_rebalance_delay_ms=0)
    decide = type(rig.core).decide
    with decisions_checked(every=1):
        assert type(rig.core).decide is not decide
        rig.stable(None, None)
    assert type(rig.core).decide is decide


# ---- the engine -----------------------------------------------------------------------------------------------------


def softly(cells: Cells, records: int, *, survives: bool = False) -> Decision[int]:
    """Return a decision whose soft change doubles the state and whose record adds 5."""
    record = ShardRecord(b"a", b"5")
    return Decision(
        0,
        (record,) * records,
        soft=(lambda: cells.values.update(a=2 * cells.values.get("a", 1)),),
        soft_survives=survives,
    )


async def test_soft_changes_are_made_before_the_records_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig().loaded()
    for records, expected in ((0, 2), (0, 4), (1, 5), (0, 10)):
        monkeypatch.setattr(rig.cells, "decide", lambda *_, n=records: softly(rig.cells, n))
        assert rig.put("a", 1).result() == 0
        assert rig.cells.values == {"a": expected}


@pytest.mark.parametrize("survives", [False, True])
async def test_soft_changes_of_refused_records_are_made_only_if_they_survive(
    monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    rig = await Rig().loaded()
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.setattr(rig.cells, "decide", lambda *_: softly(rig.cells, 1, survives=survives))
    assert refused(rig.put("a", 1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.cells.values == ({"a": 2} if survives else {})
    assert rig.failures == []


async def test_soft_change_that_raises_drops_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig().loaded()
    monkeypatch.setattr(rig.cells, "decide", lambda *_: Decision(0, soft=(lambda: 1 / 0,)))
    assert refused(rig.put("a", 1)) is ErrorCode.NOT_COORDINATOR
    assert [type(failure) for failure in rig.failures] == [ZeroDivisionError]
    assert rig.dropped == 1
