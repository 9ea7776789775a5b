"""Consumer groups in an engine: responses after the commit, time-outs, and fail-over."""

from __future__ import annotations

from typing import Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.subscriptions.changes import REGEX_INTERVAL_MS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.classic_rig import GROUP, WAITS, EngineRig, caller, outcome

SESSION_MS = 45_000


async def engine(*, lag: bool = False) -> EngineRig:
    rig = await EngineRig(lag=lag, consumer_assignment_interval_ms=0).loaded()
    rig.topics.make("t", 2)
    return rig


def beat(member_id: str, epoch: int, **fields: Any) -> c.ConsumerGroupHeartbeat:
    joins: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **((joins if epoch == 0 else {}) | fields)
    )
    return c.ConsumerGroupHeartbeat(request, caller(1))


async def test_heartbeat_response_waits_for_the_commit() -> None:
    rig = await engine(lag=True)
    first, second = rig.submit(beat("A", 0)), rig.submit(beat("A", 2))
    assert (outcome(first), outcome(second)) == (WAITS, WAITS)
    rig.log.commit()
    assert outcome(first).member_epoch == outcome(second).member_epoch == 2


async def test_refused_append_leaves_the_group_unchanged() -> None:
    rig = await engine()
    rig.submit(beat("A", 0))
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert outcome(rig.submit(beat("B", 0))) == "COORDINATOR_NOT_AVAILABLE"
    rig.log.refuse = None
    assert list(rig.consumer_group(GROUP).members) == ["A"]
    assert outcome(rig.submit(beat("A", 2))).member_epoch == 2


async def test_members_without_heartbeats_are_removed() -> None:
    rig = await engine()
    rig.submit(beat("A", 0))
    rig.submit(beat("B", 0))
    rig.wait(SESSION_MS - 1)
    assert outcome(rig.submit(beat("A", 2))).member_epoch == 2
    rig.wait(1)
    assert list(rig.consumer_group(GROUP).members) == ["A"]
    rig.wait(SESSION_MS)
    assert rig.consumer_group(GROUP).is_empty
    assert rig.failures == []


async def test_new_coordinator_restores_members_and_starts_their_timers() -> None:
    rig = await engine()
    rig.submit(beat("A", 0))
    rig.submit(beat("B", 0))
    rig.submit(beat("A", 2))
    assert rig.consumer_group(GROUP).members["A"].revoking
    rig.wait(500)
    successor = await rig.successor()
    successor.topics.make("t", 2)
    assert sorted(successor.consumer_group(GROUP).members) == ["A", "B"]
    successor.wait(999)
    assert sorted(successor.consumer_group(GROUP).members) == ["A", "B"]
    successor.wait(1)  # the rebalance time-out of A, which has not revoked its partitions
    assert list(successor.consumer_group(GROUP).members) == ["B"]
    successor.wait(SESSION_MS)
    assert successor.consumer_group(GROUP).is_empty
    assert successor.failures == []


async def test_regular_expressions_are_evaluated_in_slices_after_the_response() -> None:
    rig = await engine()
    for number in range(2_500):
        rig.topics.make(f"many-{number}")
    rig.submit(beat("A", 0, subscribed_topic_names=[], subscribed_topic_regex="many-.*7"))
    assert rig.consumer_group(GROUP).resolved == {}
    rig.engine._timers._expire()
    assert rig.consumer_group(GROUP).resolution is not None
    version_before = rig.topics.version()
    rig.topics.make(
        "many-more-7"
    )  # found by the next evaluation only, so that an evaluation ends even if topics are created all the time
    rig.wait(0)
    resolved = rig.consumer_group(GROUP).resolved["many-.*7"]
    assert (len(resolved.topics), resolved.version) == (250, version_before)
    assert rig.consumer_group(GROUP).resolution is None
    assert outcome(rig.submit(beat("A", 1))).member_epoch == 2
    rig.wait(REGEX_INTERVAL_MS + 1)
    rig.submit(beat("A", 2))
    rig.wait(0)
    assert len(rig.consumer_group(GROUP).resolved["many-.*7"].topics) == 251
    assert outcome(rig.submit(beat("A", 2))).member_epoch == 3
    assert rig.failures == []
