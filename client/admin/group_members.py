"""Members of groups of all types: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.client.errors import UnsupportedRequest, check
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL, assignment_of
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.fan_out import FanOut
    from odradek.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
    from odradek.protocol.messages.consumer_group_describe import Member as ConsumerMember
    from odradek.protocol.messages.describe_groups import DescribedGroup
    from odradek.protocol.messages.share_group_describe import DescribedGroup as ShareGroup
    from odradek.protocol.messages.share_group_describe import Member as ShareMember
    from odradek.protocol.messages.streams_group_describe import DescribedGroup as StreamsGroup
    from odradek.protocol.messages.streams_group_describe import Member as StreamsMember
    from odradek.protocol.schema import Message

ABSENT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group without its members. `coordinator` is the node id of its coordinator."""

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. `epoch` is None in a classic group.

    `assignment` maps topics to partition indexes. Of a member of a streams group, it has the inputs of its active
    tasks.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """A group with its members. `epoch` is None in a classic group.

    `type` is `consumer` (KIP-848), `share` (KIP-932), `streams` (KIP-1071) or `classic`.
    """

    group: str
    type: str
    state: str
    epoch: int | None
    assignor: str
    members: list[GroupMember]


async def members_of_groups(fan_out: FanOut, rows: Iterable[GroupListing]) -> dict[str, GroupMembers]:
    """Return listed groups with their members.

    A group is left out if its coordinator changed, or if it was deleted or changed its type, after it was listed.
    """
    by_type: dict[str, dict[int, list[str]]] = {}
    for row in rows:
        by_type.setdefault(row.type.lower(), {}).setdefault(row.coordinator, []).append(row.group)
    found: dict[str, GroupMembers] = {}
    for kind, by_node in by_type.items():
        if kind not in _DESCRIBE:
            continue
        request, described = _DESCRIBE[kind]
        responses = await fan_out.request_names(by_node, request)
        found |= {
            group.group_id: described(group)
            for _, response in responses
            for group in response.groups
            if group.error_code == ErrorCode.NONE
        }
    return found


async def group_members(cluster: Cluster, group: str) -> GroupMembers | None:
    """Return a group of any protocol with its members, or None if it does not exist."""
    return (
        await _group(cluster, group, "consumer")
        or await _group(cluster, group, "classic")
        or await _group(cluster, group, "share")
        or await _group(cluster, group, "streams")
    )


async def _group(cluster: Cluster, group: str, kind: str) -> GroupMembers | None:
    """Return a group of a type, or None if there is none of this type. A broker without the request has no such groups.

    A classic group can have committed offsets alone.
    """
    request, described = _DESCRIBE[kind]
    try:
        response = await cluster.request_coordinator(CoordinatorType.GROUP, group, request([group]), _first_group_error)
    except UnsupportedRequest:
        return None
    found = response.groups[0]
    if found.error_code in ABSENT or (kind == "classic" and found.group_state == "Dead" and not found.members):
        return None
    check(found.error_code, f"group {group}", found.error_message)
    return described(found)


def _consumer_group(found: ConsumerGroup) -> GroupMembers:
    members = [_modern_member(member, member.instance_id) for member in found.members]
    epoch, assignor = found.group_epoch, found.assignor_name
    return GroupMembers(found.group_id, "consumer", found.group_state, epoch, assignor, members)


def _share_group(found: ShareGroup) -> GroupMembers:
    members = [_modern_member(member, None) for member in found.members]
    return GroupMembers(found.group_id, "share", found.group_state, found.group_epoch, found.assignor_name, members)


def _streams_group(found: StreamsGroup) -> GroupMembers:
    inputs = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in (found.topology and found.topology.subtopologies) or ()
    }
    members = [_streams_member(member, inputs) for member in found.members]
    epoch, assignor = found.group_epoch, found.assignor_name or ""
    return GroupMembers(found.group_id, "streams", found.group_state, epoch, assignor, members)


def _streams_member(member: StreamsMember, inputs: Mapping[str, list[str]]) -> GroupMember:
    """Return a member with the partitions that its active tasks read. `inputs` has the topics of each subtopology.

    A task reads the partition of its number of each topic. A topic with fewer partitions does not have it.
    """
    assignment: dict[str, list[int]] = {}
    for tasks in member.assignment.active_tasks:
        for topic in inputs.get(tasks.subtopology_id, ()):
            assignment.setdefault(topic, []).extend(tasks.partitions)
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, member.member_epoch, assignment
    )


def _modern_member(member: ConsumerMember | ShareMember, instance_id: str | None) -> GroupMember:
    assignment = {each.topic_name: each.partitions for each in member.assignment.topic_partitions}
    return GroupMember(
        member.member_id, instance_id, member.client_id, member.client_host, member.member_epoch, assignment
    )


def _classic_group(found: DescribedGroup) -> GroupMembers:
    decodable = found.protocol_type == CONSUMER_PROTOCOL
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            None,
            _assignment(bytes(member.member_assignment)) if decodable else {},
        )
        for member in found.members
    ]
    return GroupMembers(found.group_id, "classic", found.group_state, None, found.protocol_data, members)


_DESCRIBE: Final[Mapping[str, tuple[Callable[[list[str]], Message], Callable[[Any], GroupMembers]]]] = {
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=names), _consumer_group),
    "classic": (lambda names: DescribeGroupsRequest(groups=names), _classic_group),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=names), _share_group),
    "streams": (lambda names: StreamsGroupDescribeRequest(group_ids=names), _streams_group),
}
"""Request that describes groups, and the conversion of a described group, by type."""


def _first_group_error(response: Any) -> int:
    return int(response.groups[0].error_code)


def _assignment(data: bytes) -> dict[str, list[int]]:
    """Return the assignment of a member of a classic group.

    It is empty before the sync phase ends, or if it is malformed.
    """
    try:
        return {each.topic: each.partitions for each in assignment_of(data).assigned_partitions} if data else {}
    except Malformed:
        return {}
