"""ConsumerGroupHeartbeat: checks of requests with Kafka's errors, and special cases of subscriptions and members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.draft import (
    JoinExpired,
    RebalanceExpired,
    ResolveRegexes,
    SessionExpired,
    SyncExpired,
)
from odradek.coordinator.group.modern.subscriptions import changes, regexes
from odradek.coordinator.group.records import to_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.patterns import CHARACTERS_PER_SLICE
from odradek.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from odradek.runtime.shard import Decision
from tests.support.classic_rig import GROUP, caller
from tests.support.modern_rig import LATEST, REBALANCE_MS, ModernRig, encode_assignment, metadata

if TYPE_CHECKING:
    from odradek.coordinator.group.modern.state import Resolution

JOIN: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": "A",
    "member_epoch": 0,
    "rebalance_timeout_ms": REBALANCE_MS,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def rig() -> ModernRig:
    modern_rig = ModernRig()
    modern_rig.topics.make("t", 4)
    return modern_rig


def refusal(rig: ModernRig, version: int = LATEST, **fields: Any) -> Refusal:
    request = ConsumerGroupHeartbeatRequest(**(JOIN | fields))
    try:
        decision = rig.core.decide(c.ConsumerGroupHeartbeat(request, caller(version)), rig.now_ms)
    except Refusal as refused:
        return refused
    assert isinstance(decision, Decision)
    assert isinstance(decision.reply, Refusal), decision
    assert decision.records == ()
    return decision.reply


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": " ", "member_epoch": -1}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [RequestTopicPartitions()]}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_heartbeat_is_refused_with_kafkas_message(rig: ModernRig, fields: dict[str, Any], message: str) -> None:
    refused = refusal(rig, **fields)
    assert (refused.error, refused.message) == (ErrorCode.INVALID_REQUEST, message)


def test_white_space_that_java_does_not_trim_is_a_valid_id(rig: ModernRig) -> None:
    no_break_space = "\u00a0"
    reply = rig.beat(
        "A",
        0,
        owned={},
        group=no_break_space,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        rack_id=no_break_space,
    )
    assert not isinstance(reply, str)
    assert refusal(rig, group_id="\0\x1f").message == "GroupId can't be empty."


def test_unknown_assignor_is_refused(rig: ModernRig) -> None:
    refused = refusal(rig, server_assignor="sticky")
    assert refused.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


def test_heartbeat_without_group_version_is_refused(rig: ModernRig) -> None:
    rig.features.level = 0
    assert refusal(rig).error is ErrorCode.UNSUPPORTED_VERSION


def test_version_0_receives_a_generated_member_id(rig: ModernRig) -> None:
    reply = rig.beat("", 0, owned={}, version=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    assert not isinstance(reply, str)
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("1", 2, 5_000)
    assert refusal(rig, version=0, member_id="", member_epoch=1).error is ErrorCode.INVALID_REQUEST


def test_heartbeat_to_a_missing_group_is_refused(rig: ModernRig) -> None:
    refused = refusal(rig, member_epoch=3)
    assert (refused.error, refused.message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
    assert refusal(rig, member_epoch=-1).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_heartbeat_of_a_member_to_a_classic_group_is_refused(rig: ModernRig) -> None:
    rig.join()
    refused = refusal(rig, member_epoch=3)
    assert (refused.error, refused.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {GROUP} is not a consumer group.",
    )


def test_unknown_members_and_wrong_epochs_are_refused(rig: ModernRig) -> None:
    rig.enter("A", "t")
    refused = refusal(rig, member_id="B", member_epoch=1)
    assert (refused.error, refused.message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member B is not a member of group {GROUP}.",
    )
    assert refusal(rig, member_epoch=9).message == (
        "The consumer group member has a greater member epoch (9) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )
    assert "smaller member epoch (1)" in (refusal(rig, member_epoch=1).message or "")


def test_invalid_regular_expression_is_refused(rig: ModernRig) -> None:
    refused = refusal(rig, subscribed_topic_regex="(")
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (refused.message or "").startswith("SubscribedTopicRegex `(` is not a valid regular expression: ")


def test_topic_names_of_a_group_are_limited(rig: ModernRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a subscription visits the names of all members."""
    monkeypatch.setattr(changes, "NAMES_MAX", 3)
    rig.enter("A", "t", "u", "v")
    rig.enter("B", "v", "u")
    refused = refusal(rig, member_id="C", subscribed_topic_names=["t", "w"])
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "at most 3 topic names" in (refused.message or "")
    assert list(rig.modern.members) == ["A", "B"]


def test_names_that_a_member_drops_do_not_count(rig: ModernRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "NAMES_MAX", 3)
    rig.enter("A", "t", "u", "v")
    reply = rig.follow("A", subscribed_topic_names=["x", "y", "z"])
    assert not isinstance(reply, str)
    assert rig.modern.members["A"].topics == ("x", "y", "z")


def test_regular_expressions_of_a_group_are_limited(rig: ModernRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "REGEXES_MAX", 2)
    rig.enter("A", regex="t.*")
    rig.enter("B", regex="u.*")
    rig.enter("C", regex="u.*")
    refused = refusal(rig, member_id="D", subscribed_topic_regex="v.*")
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "at most 2 different regular expressions" in (refused.message or "")


def test_expressions_are_compiled_one_per_slice_and_once_per_evaluation(
    rig: ModernRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compilation of one expression can take several milliseconds."""
    slices: list[int] = []
    evaluations: list[tuple[int, int]] = []
    compile_next, match, write = regexes._compile, regexes._match, regexes._write

    def compiling(work: Resolution) -> Resolution:
        after = compile_next(work)
        slices.append(len(after.matchers) - len(work.matchers))
        return after

    def matching(draft: Any, work: Resolution) -> Resolution:
        slices.append(0)
        return match(draft, work)

    def writing(draft: Any, work: Resolution) -> None:
        evaluations.append((len(work.regexes), sum(slices)))
        assert slices.count(0) >= 10, "the names are matched in slices"
        slices.clear()
        write(draft, work)

    monkeypatch.setattr(regexes, "_compile", compiling)
    monkeypatch.setattr(regexes, "_match", matching)
    monkeypatch.setattr(regexes, "_write", writing)
    monkeypatch.setattr(regexes, "MATCHES_PER_SLICE_MAX", 3)
    for number in range(30):
        rig.topics.make(f"u-{number}", 1)
    for member_id, regex in (("A", "u-.*"), ("B", "t.*")):
        rig.enter(member_id, regex=regex)
        rig.wait(2 * changes.REGEX_INTERVAL_MS)
        rig.follow("A")
    assert evaluations[-1] == (2, 2)
    assert all(count == compiled for count, compiled in evaluations)
    assert set(rig.modern.resolved["u-.*"].topics) == {f"u-{number}" for number in range(30)}


def test_slice_of_long_names_has_few_names(rig: ModernRig, monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[int] = []
    match = regexes._match

    def matching(draft: Any, work: Resolution) -> Resolution:
        after = match(draft, work)
        matched.append(sum(map(len, work.names[work.position : after.position])) * len(work.regexes))
        return after

    monkeypatch.setattr(regexes, "_match", matching)
    long_names = [f"u-{number}".ljust(249, "x") for number in range(100)]
    for name in long_names:
        rig.topics.make(name, 1)
    for member_id, regex in (("A", "u-.*"), ("B", "t.*")):
        rig.enter(member_id, regex=regex)
        rig.wait(2 * changes.REGEX_INTERVAL_MS)
        rig.follow("A")
    assert max(matched) <= CHARACTERS_PER_SLICE
    assert matched[-1] > 0
    assert set(rig.modern.resolved["u-.*"].topics) == set(long_names)
    monkeypatch.setattr(regexes, "CHARACTERS_PER_SLICE", 1)
    rig.enter("C", regex="u-1.*")
    rig.wait(2 * changes.REGEX_INTERVAL_MS)
    rig.follow("A")
    assert set(rig.modern.resolved["u-1.*"].topics) == {name for name in long_names if name.startswith("u-1")}


def test_heartbeat_without_changes_writes_no_records(rig: ModernRig) -> None:
    rig.enter("A", "t")
    rig.follow("A")
    written = len(rig.log)
    for _ in range(3):
        reply = rig.follow("A")
        assert not isinstance(reply, str)
        assert reply.assignment is None
    assert len(rig.log) == written


def test_changed_client_id_is_written(rig: ModernRig) -> None:
    rig.enter("A", "t")
    written, epoch = len(rig.log), rig.modern.epoch
    rig.follow("A", client="another")
    assert len(rig.log) == written + 1
    assert (rig.modern.members["A"].client_id, rig.modern.epoch) == ("another", epoch)


def test_subscription_by_names_and_regular_expression(rig: ModernRig) -> None:
    rig.topics.make("u-1", 2)
    rig.enter("A", "t", regex="u-.*")
    rig.follow("A")
    assert rig.clients["A"].assigned == {"t": (0, 1, 2, 3), "u-1": (0, 1)}
    rig.check()


def test_member_without_topics_does_not_change_other_assignments(rig: ModernRig) -> None:
    """Kafka counts subscribers per topic, omits the new member, and assigns no partitions."""
    rig.enter("A", "t")
    rig.enter("B", "t")
    rig.send_leave("B")
    rig.enter("0")
    rig.follow("A")
    assert rig.clients["A"].assigned == {"t": (0, 1, 2, 3)}


def test_member_changes_its_instance_id(rig: ModernRig) -> None:
    """The old instance id becomes unknown."""
    rig.enter("A", "t", instance="i")
    rig.enter("A", "t", instance="j")
    assert rig.modern.static_ids == {"j": "A"}
    assert refusal(rig, instance_id="i", member_epoch=2).message == "Instance id i is unknown."


@pytest.mark.parametrize("make", [SessionExpired, JoinExpired, SyncExpired])
def test_timers_of_removed_members_and_groups_do_nothing(rig: ModernRig, make: Any) -> None:
    assert rig.do(make("nowhere", "A")) is None
    rig.enter("A", "t")
    written = len(rig.log)
    assert rig.do(make(GROUP, "B")) is None
    assert rig.do(RebalanceExpired(GROUP, "B", 1)) is None
    assert rig.do(RebalanceExpired(GROUP, "A", 1)) is None
    assert rig.do(ResolveRegexes("nowhere")) is None
    assert len(rig.log) == written


def test_partition_metadata_record_of_an_old_broker_is_deleted(rig: ModernRig) -> None:
    """Kafka before 4.1 wrote records of type 4. They are deleted with the next change of the group."""
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    rig.enter("A", "t")
    rig.log.append(to_record(key, ConsumerGroupPartitionMetadataValue()))
    rig.crash()
    before = rig.modern.has_partition_metadata
    rig.follow("A")
    assert (before, rig.modern.has_partition_metadata) == (True, False)
    assert rig.log[-1].value is None
    rig.check()


def test_classic_requests_of_consumer_protocol_members_are_refused(rig: ModernRig) -> None:
    rig.enter("A", "t")
    beat = c.Heartbeat(HeartbeatRequest(GROUP, 2, "A", None), caller(4))
    sync = c.SyncGroup(SyncGroupRequest(group_id=GROUP, generation_id=2, member_id="A"), caller(5), 1)
    assert rig.do(beat) == "UNKNOWN_MEMBER_ID"
    assert rig.do(sync) == "UNKNOWN_MEMBER_ID"


def test_classic_member_without_valid_subscription_is_refused(rig: ModernRig) -> None:
    rig.enter("A", "t")
    assert rig.join("X", protocols={"range": b"\0"}) == "INCONSISTENT_GROUP_PROTOCOL"
    assert rig.join("X", protocols={"range": b"\xff\xff"}) == "INCONSISTENT_GROUP_PROTOCOL"
    assert rig.join("X", protocol_type="connect") == "INCONSISTENT_GROUP_PROTOCOL"
    assert rig.join("X", protocols={}) == "INCONSISTENT_GROUP_PROTOCOL"
    rig.check()


def test_classic_member_of_version_0_has_its_session_timeout_to_sync(rig: ModernRig) -> None:
    """Version 0 has no rebalance time-out. The coordinator once used -1, and removed the member immediately."""
    rig.enter("A", "t")
    reply = rig.join("", version=0, protocols={"range": metadata(["t"])}, session_ms=20_000, rebalance_ms=-1)
    rig.fire_due_timers()
    assert rig.modern.members[reply.member_id].rebalance_timeout_ms == 20_000
    rig.wait(19_999)
    assert reply.member_id in rig.modern.members
    rig.wait(1)
    assert reply.member_id not in rig.modern.members
    rig.check()


def test_only_an_empty_group_can_be_deleted(rig: ModernRig) -> None:
    rig.enter("A", "t")
    with pytest.raises(Refusal) as caught:
        rig.modern.check_delete()
    assert caught.value.error is ErrorCode.NON_EMPTY_GROUP
    rig.send_leave("A")
    rig.modern.check_delete()
    rig.modern.check_offset_delete()
    assert rig.modern.commit_timers("A") == ()
    assert rig.modern.protocol_type == "consumer"
    for record in rig.modern.tombstones():
        rig.log.append(record)
        rig.core.apply(len(rig.log) - 1, record, 7)
    assert GROUP not in rig.core.state.groups
    rig.check()


def test_clock_set_back_does_not_delay_the_next_assignment() -> None:
    rig = ModernRig(consumer_assignment_interval_ms=1_000)
    rig.topics.make("t", 4)
    rig.enter("A", "t")
    rig.now_ms -= 3_600_000
    rig.enter("B", "t")
    assert rig.modern.assignment_epoch == rig.modern.epoch
    rig.enter("C", "t")
    assert rig.modern.assignment_epoch < rig.modern.epoch, "the interval counts from the new clock"


def test_conversion_with_surplus_and_missing_partitions_computes_a_target() -> None:
    rig = ModernRig(consumer_migration_policy="bidirectional", group_initial_rebalance_delay_ms=0)
    rig.topics.make("t", 2)
    rig.topics.make("u", 2)
    waiter: Any = rig.join_classic("", "t", "u", instance="i")
    rig.wait(0)
    joined = rig.responses[waiter]
    lacking = {joined.member_id: encode_assignment({"t": (0, 1, 2), "u": (0,)})}
    rig.sync(joined.member_id, joined.generation_id, lacking, protocol_type="consumer", protocol_name="range")
    rig.beat("S", 0, owned={}, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t", "u"], instance_id="i")
    [target] = rig.modern.targets.values()
    assert {topic_id.rstrip(b"\0"): set(numbers) for topic_id, numbers in target.items()} == {
        b"t": {0, 1},
        b"u": {0, 1},
    }


def test_large_group_is_not_upgraded() -> None:
    """Its records would exceed a batch, and its members would be decoded in one step."""
    rig = ModernRig(
        consumer_migration_policy="bidirectional", group_initial_rebalance_delay_ms=0, record_batch_bytes_max=1_000
    )
    rig.topics.make("t", 2)
    waiter: Any = rig.join_classic("", *(f"missing-{number}" for number in range(100)), "t")
    rig.wait(0)
    assert rig.responses[waiter].error_code == ErrorCode.NONE
    reply = rig.beat("S", 0, owned={}, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"])
    assert reply == "GROUP_ID_NOT_FOUND"


def test_conversion_omits_owned_partitions_that_do_not_exist() -> None:
    rig = ModernRig(consumer_migration_policy="bidirectional", group_initial_rebalance_delay_ms=0)
    rig.topics.make("t", 2)
    waiter: Any = rig.join_classic("", "t", owned={"t": (0, 1, 2, 1_000_000, -1), "gone": (0,)})
    rig.wait(0)
    joined = rig.responses[waiter]
    rig.sync(joined.member_id, joined.generation_id, {}, protocol_type="consumer", protocol_name="range")
    rig.beat("S", 0, owned={}, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"])
    assert [list(held) for held in rig.modern.members[joined.member_id].assigned.values()] == [[0, 1]]
