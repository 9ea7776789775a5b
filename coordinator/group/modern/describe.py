"""ConsumerGroupDescribe for one group."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from odradek.coordinator.group.commands import DescribeConsumer
from odradek.coordinator.group.modern.assignment.target import most_preferred
from odradek.coordinator.group.modern.group_lookup import existing_group
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.ports import Topics
from odradek.coordinator.group.state import State
from odradek.protocol.errors import Refusal
from odradek.protocol.messages import consumer_group_describe as d
from odradek.runtime.shard import Decision

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def decide_describe(state: State, command: DescribeConsumer, now_ms: int) -> Decision[Any]:
    """Describe a group. The description has the error GROUP_ID_NOT_FOUND if there is no such consumer group."""
    try:
        group = existing_group(state, command.group_id)
    except Refusal as refusal:
        return Decision(
            d.DescribedGroup(group_id=command.group_id, error_code=refusal.error, error_message=refusal.message)
        )
    return Decision(
        d.DescribedGroup(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=most_preferred(group.assignors, state.configs.broker().consumer_assignors),
            members=[_member(group, member, state.topics) for member in group.members.values()],
        )
    )


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> d.Member:
    """Describe a member. Partitions that it must revoke are still part of its assignment."""
    held = {
        topic_id: (*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ()))
        for topic_id in (*member.assigned, *member.revoking)
    }
    return d.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(held, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> d.Assignment:
    """Return the assignment with topic names. Topics that do not exist are omitted."""
    described = []
    for topic_id in sorted(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            described.append(
                d.TopicPartitions(
                    topic_id=UUID(bytes=topic_id), topic_name=topic.name, partitions=sorted(partitions[topic_id])
                )
            )
    return d.Assignment(topic_partitions=described)
