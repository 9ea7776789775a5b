"""Records of evaluated regular expressions that exceed one batch, in an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.subscriptions import regexes
from odradek.coordinator.group.modern.subscriptions.changes import REGEX_INTERVAL_MS, REGEXES_MAX
from odradek.coordinator.group.modern.subscriptions.metadata_hash import UNKNOWN_HASH
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.classic_rig import GROUP, EngineRig, caller, outcome
from tests.support.fake_shard_log import FakeShardLog

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


def refused(rig: EngineRig) -> int:
    assert isinstance(rig.log, BoundedLog)
    return rig.log.refused


def beat(rig: EngineRig, member_id: str, epoch: int, regex: str | None = None, describable: Any = None) -> Any:
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_regex=regex,
        **(joins if epoch == 0 else {}),
    )
    return outcome(rig.submit(c.ConsumerGroupHeartbeat(request, replace(caller(LATEST), describable=describable))))


def assigned_topics(response: Any) -> int:
    return len(response.assignment.topic_partitions)


async def test_matches_beyond_a_batch_are_written_in_several_batches_and_one_epoch() -> None:
    rig = await rig_with()
    for number in range(REGEXES_MAX):
        beat(rig, f"member-{number}", 0, f"(m|x{number}).*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "member-0", rig.consumer_group(GROUP).members["member-0"].epoch)
    rig.wait(0)
    group = rig.consumer_group(GROUP)
    assert len(group.resolved) == REGEXES_MAX
    epoch = group.epoch
    for number in range(250):
        rig.topics.make(f"m-{number}".ljust(249, "x"))
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
    rig.topics.make("t", 4)
    beat(rig, "A", 0, ".*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    assert assigned_topics(beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch)) == 1
    beat(rig, "B", 0, "t.*")
    epoch = rig.consumer_group(GROUP).epoch
    while "t.*" not in rig.consumer_group(GROUP).resolved:
        rig.engine._timers._expire()
    assert (rig.consumer_group(GROUP).epoch, rig.consumer_group(GROUP).metadata_hash) == (epoch, UNKNOWN_HASH)
    successor = await rig.successor()
    successor.topics.make("t", 4)
    beat(successor, "A", successor.consumer_group(GROUP).members["A"].epoch)
    group = successor.consumer_group(GROUP)
    assert group.epoch == epoch + 1
    assert {member: sum(map(len, target.values())) for member, target in group.targets.items()} == {"A": 2, "B": 2}
    assert successor.failures == []


async def test_expression_whose_topics_exceed_a_batch_keeps_its_old_topics() -> None:
    rig = await rig_with(4_000)
    for number in range(10):
        rig.topics.make(f"m-{number}".ljust(200, "x"))
    beat(rig, "A", 0, "m.*")
    beat(rig, "B", 0, "u.*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "B", rig.consumer_group(GROUP).members["B"].epoch)
    rig.wait(0)
    old = rig.consumer_group(GROUP).resolved["m.*"].topics
    assert len(old) == 10
    for number in range(10, 30):
        rig.topics.make(f"m-{number}".ljust(200, "x"))
    rig.topics.make("u")
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch)
    rig.wait(REGEX_INTERVAL_MS - 1)
    resolved = rig.consumer_group(GROUP).resolved
    assert (resolved["m.*"].topics, resolved["u.*"].topics) == (old, ("u",))
    assert {entry.version for entry in resolved.values()} == {rig.topics.version()}
    [notice] = rig.notices
    assert notice.event == "regular expression not resolved"
    assert dict(notice.fields).items() >= {"group": GROUP, "regex": "m.*", "topics": 30}.items()
    written = len(rig.log.batches)
    rig.wait(REGEX_INTERVAL_MS)
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch)
    rig.wait(1)
    assert len(rig.notices) == 1, "no evaluation before the topics change"
    assert len(rig.log.batches) <= written + 1
    assert (refused(rig), rig.failures) == (0, [])


async def test_evaluation_is_refused_and_not_repeated_immediately_if_no_record_fits_a_batch() -> None:
    """A client can set message.max.bytes to any value."""
    rig = await rig_with()
    rig.topics.make("m")
    beat(rig, "A", 0, "m.*")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch)
    rig.topics.make("m-2")
    rig.wait(REGEX_INTERVAL_MS + 1)
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch)
    rig.configs.set(record_batch_bytes_max=50)
    assert isinstance(rig.log, BoundedLog)
    rig.log.bytes_max = 50
    for _ in range(20):
        rig.engine._timers._expire()
    assert refused(rig) == 1
    assert rig.failures == []


def public(topics: Sequence[str]) -> list[str]:
    """Stand for the permission of a client to describe the topics that are not secret."""
    return [topic for topic in topics if not topic.startswith("secret")]


def matched(rig: EngineRig, regex: str) -> tuple[str, ...]:
    return rig.consumer_group(GROUP).resolved[regex].topics


async def test_expression_matches_only_topics_that_its_member_may_describe_also_after_a_fail_over() -> None:
    rig = await EngineRig(FakeShardLog(), consumer_assignment_interval_ms=0, authorizes_topics=True).loaded()
    for topic in ("secret-1", "public-1"):
        rig.topics.make(topic)
    beat(rig, "A", 0, ".*", public)
    rig.wait(REGEX_INTERVAL_MS + 1)
    assert matched(rig, ".*") == ("public-1",)
    for topic in ("secret-2", "public-2"):
        rig.topics.make(topic)
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch, describable=public)
    rig.wait(REGEX_INTERVAL_MS + 1)
    assert matched(rig, ".*") == ("public-1", "public-2")

    successor = await rig.successor()
    for topic in ("secret-1", "public-1", "secret-3", "public-3"):
        successor.topics.make(topic)
    successor.wait(REGEX_INTERVAL_MS + 1)
    beat(successor, "B", 0, "p.*", public)
    successor.wait(1)
    assert matched(successor, "p.*") == ("public-1", "public-3")
    assert matched(successor, ".*") == ("public-1",), "the permissions of A are not known yet"
    beat(successor, "A", successor.consumer_group(GROUP).members["A"].epoch, describable=public)
    successor.wait(1)
    assert matched(successor, ".*") == ("public-1", "public-3")
    assert successor.failures == []


async def test_permissions_for_an_expression_that_no_member_uses_are_dropped() -> None:
    rig = await EngineRig(FakeShardLog(), consumer_assignment_interval_ms=0, authorizes_topics=True).loaded()
    rig.topics.make("public-1")
    beat(rig, "A", 0, "p.*", public)
    rig.wait(1)
    beat(rig, "A", rig.consumer_group(GROUP).members["A"].epoch, "q.*", public)
    rig.wait(1)
    assert list(rig.consumer_group(GROUP).describable) == ["q.*"]
