"""Records of evaluated regular expressions that exceed one batch, in an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions import regexes
from odradek.coordinator.group.modern.subscriptions.changes import REGEX_INTERVAL_MS, REGEXES_MAX
from odradek.coordinator.group.modern.subscriptions.metadata_hash import UNKNOWN_HASH
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.classic_rig import GROUP, EngineRig, caller, outcome
from tests.support.fake_shard_log import FakeShardLog
from tests.support.group_ports import FakeTopics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from odradek.runtime.shard import ShardRecord

LATEST = 1


class BoundedLog(FakeShardLog):
    """A log that refuses batches larger than max.message.bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes_max = bytes_max
        self.refused = 0

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        if len(build_batch([(record.key, record.value, now_ms, ()) for record in records])) > self.bytes_max:
            self.refused += 1
            raise Refusal(ErrorCode.MESSAGE_TOO_LARGE)
        return super().append(records, now_ms, guard, deferred=deferred)


async def rig_with(bytes_max: int = 1_048_588) -> EngineRig:
    log = BoundedLog(bytes_max)
    return await EngineRig(log, consumer_assignment_interval_ms=0, record_batch_bytes_max=bytes_max).loaded()


def topics_of(rig: EngineRig) -> FakeTopics:
    topics = rig.core.state.topics
    assert isinstance(topics, FakeTopics)
    return topics


def group_of(rig: EngineRig) -> ConsumerGroup:
    group = rig.core.state.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def refused(rig: EngineRig) -> int:
    assert isinstance(rig.log, BoundedLog)
    return rig.log.refused


def beat(rig: EngineRig, member_id: str, epoch: int, regex: str | None = None) -> Any:
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_regex=regex,
        **(joins if epoch == 0 else {}),
    )
    return outcome(rig.submit(c.ConsumerGroupHeartbeat(request, caller(LATEST))))


def assigned_topics(response: Any) -> int:
    return len(response.assignment.topic_partitions)


async def test_matches_beyond_a_batch_are_written_in_several_batches_and_one_epoch() -> None:
    rig = await rig_with()
    for number in range(REGEXES_MAX):
        beat(rig, f"member-{number}", 0, f"(m|x{number}).*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "member-0", group_of(rig).members["member-0"].epoch)
    rig.wait(0)
    group = group_of(rig)
    assert len(group.resolved) == REGEXES_MAX
    epoch = group.epoch
    for number in range(250):
        topics_of(rig).make(f"m-{number}".ljust(249, "x"))
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "member-0", group.members["member-0"].epoch)
    rig.wait(1)
    assert {len(resolved.topics) for resolved in group.resolved.values()} == {250}
    assert (group.epoch, group.resolution) == (epoch + 1, None)
    assert group.metadata_hash != UNKNOWN_HASH
    assert assigned_topics(beat(rig, "member-0", group.members["member-0"].epoch)) > 0
    assert (refused(rig), rig.notices, rig.failures) == (0, [], [])


async def test_fail_over_between_batches_loses_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set of subscribed topics is the same before and after, so their hash does not show the change."""
    monkeypatch.setattr(regexes, "WRITTEN_BYTES_MAX", 1)
    rig = await rig_with()
    topics_of(rig).make("t", 4)
    beat(rig, "A", 0, ".*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    assert assigned_topics(beat(rig, "A", group_of(rig).members["A"].epoch)) == 1
    beat(rig, "B", 0, "t.*")
    epoch = group_of(rig).epoch
    while "t.*" not in group_of(rig).resolved:
        rig.engine._timers._expire()
    assert (group_of(rig).epoch, group_of(rig).metadata_hash) == (epoch, UNKNOWN_HASH)
    successor = await rig.successor()
    topics_of(successor).make("t", 4)
    beat(successor, "A", group_of(successor).members["A"].epoch)
    group = group_of(successor)
    assert group.epoch == epoch + 1
    assert {member: sum(map(len, target.values())) for member, target in group.targets.items()} == {"A": 2, "B": 2}
    assert successor.failures == []


async def test_expression_whose_topics_exceed_a_batch_keeps_its_old_topics() -> None:
    rig = await rig_with(4_000)
    for number in range(10):
        topics_of(rig).make(f"m-{number}".ljust(200, "x"))
    beat(rig, "A", 0, "m.*")
    beat(rig, "B", 0, "u.*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "B", group_of(rig).members["B"].epoch)
    rig.wait(0)
    old = group_of(rig).resolved["m.*"].topics
    assert len(old) == 10
    for number in range(10, 30):
        topics_of(rig).make(f"m-{number}".ljust(200, "x"))
    topics_of(rig).make("u")
    beat(rig, "A", group_of(rig).members["A"].epoch)
    rig.wait(REGEX_INTERVAL_MS - 1)
    resolved = group_of(rig).resolved
    assert (resolved["m.*"].topics, resolved["u.*"].topics) == (old, ("u",))
    assert {entry.version for entry in resolved.values()} == {topics_of(rig).version()}
    [notice] = rig.notices
    assert notice.event == "regular expression not resolved"
    assert dict(notice.fields).items() >= {"group": GROUP, "regex": "m.*", "topics": 30}.items()
    written = len(rig.log.batches)
    rig.wait(REGEX_INTERVAL_MS)
    beat(rig, "A", group_of(rig).members["A"].epoch)
    rig.wait(1)
    assert len(rig.notices) == 1, "no evaluation before the topics change"
    assert len(rig.log.batches) <= written + 1
    assert (refused(rig), rig.failures) == (0, [])
