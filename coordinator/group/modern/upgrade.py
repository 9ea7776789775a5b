"""A classic group becomes a consumer group when the first member of the consumer protocol joins it (KIP-848).

Its members stay, and go on with JoinGroup, SyncGroup and Heartbeat (classic_members.py).
"""

from collections.abc import Sequence
from typing import Final

from coordinator.group.classic.conversion import ClassicMemberView, members_of, release
from coordinator.group.classic.state import ClassicGroup
from coordinator.group.modern import records as r
from coordinator.group.modern.consumer_protocol import assignment_of, by_topic_id, subscription_of
from coordinator.group.modern.draft import Draft
from coordinator.group.modern.member import NO_EPOCH, ClassicMember, Member
from coordinator.group.modern.metadata_hash import group_hash
from coordinator.group.modern.state import CONSUMER_PROTOCOL, ConsumerGroup
from coordinator.group.state import Group
from protocol.errors import ErrorCode, Malformed, Refusal

UPGRADES: Final = ("upgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow it."""


def to_consumer(draft: Draft, classic: Group) -> None:
    """`draft.group` becomes what `classic` is. Raises Refusal(GROUP_ID_NOT_FOUND) when it may not."""
    assert isinstance(classic, ClassicGroup)
    members = members_of(classic)
    if not classic.is_empty:
        _check(draft, classic, len(members))
    answers, timers = release(classic)
    draft.effects += answers
    draft.timers += timers
    draft.records += classic.tombstones()
    if not classic.is_empty:
        _fill(draft, classic, members)


def _check(draft: Draft, classic: ClassicGroup, size: int) -> None:
    config = draft.state.configs.broker()
    if config.consumer_migration_policy.lower() not in UPGRADES:
        raise _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL:
        raise _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if size > config.consumer_max_size:
        raise _not_upgraded(classic, "the group size exceeds the consumer group maximum size")


def _not_upgraded(classic: ClassicGroup, why: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )


def _fill(draft: Draft, classic: ClassicGroup, members: Sequence[ClassicMemberView]) -> None:
    group, topics = draft.group, draft.state.topics
    group.epoch = group.assignment_epoch = classic.generation
    for view in members:
        try:
            target = _assigned(draft, classic, view)
            member = _member(classic, view, target)
        except Malformed as malformed:
            raise _not_upgraded(classic, "the embedded consumer protocol is malformed") from malformed
        if any(group.partition_epoch(topic_id, p) != NO_EPOCH for topic_id in target for p in target[topic_id]):
            raise _not_upgraded(classic, "a partition is assigned to two of its members")
        group.targets[member.member_id] = target
        group.put_member(member)
        draft.start_session(member.member_id, view.session_timeout_ms)
    group.metadata_hash = group_hash(group.subscriptions.topics(), topics, draft.state.topic_hashes)
    write_group(draft, group)


def _assigned(draft: Draft, classic: ClassicGroup, view: ClassicMemberView) -> dict[bytes, frozenset[int]]:
    if not view.assignment:
        return {}
    assignment = assignment_of(view.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    return by_topic_id(
        ((topic.topic, topic.partitions) for topic in assignment.assigned_partitions), draft.state.topics
    )


def _member(classic: ClassicGroup, view: ClassicMemberView, target: dict[bytes, frozenset[int]]) -> Member:
    # A group in its first rebalance has chosen no protocol yet: all of them say the same of the topics.
    metadata = dict(view.protocols).get(classic.protocol_name or "", view.protocols[0][1])
    subscription = subscription_of(metadata)
    epoch = classic.generation
    return Member(
        view.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=view.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=view.rebalance_timeout_ms,
        client_id=view.client_id,
        client_host=view.client_host,
        topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        assigned={topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in target.items()},
        classic=ClassicMember(view.session_timeout_ms, view.protocols),
    )


def write_group(draft: Draft, group: ConsumerGroup) -> None:
    """Everything about the group, in Kafka's order."""
    group_id, members = group.group_id, group.members.values()
    draft.records += (
        *(r.member_record(group_id, member) for member in members),
        r.group_record(group_id, group.epoch, group.metadata_hash),
        *(r.target_assignment_record(group_id, member_id, target) for member_id, target in group.targets.items()),
        r.target_metadata_record(group_id, group.assignment_epoch, group.assignment_ms),
        *(r.current_assignment_record(group_id, member) for member in members),
    )
