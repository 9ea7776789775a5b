"""Groups: list, describe members and lag, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.client.admin.group_offsets import (
    NAMES_VERSION_MAX,
    CommittedOffset,
    committed_by_partition,
    committed_offsets,
)
from odradek.client.admin.topics import partitions_with_offsets
from odradek.client.errors import InvalidArgument, NotFound, Refused, UnsupportedRequest, check
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL, assignment_of
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odradek.client.admin.topics import PartitionDescription
    from odradek.client.network.cluster import Cluster
    from odradek.protocol.schema import Message

STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
TYPES: Final = ("classic", "consumer", "share", "streams")
"""Kafka's states and types of groups. A broker returns an empty list for other values, not an error."""
INACTIVE_STATES: Final = frozenset({"Empty", "Dead"})
"""States without members."""
ABSENT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
LIST_REMEDY: Final = "list the groups with: odradek groups list"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group without its members. `coordinator` is the node id of its coordinator."""

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupLag(GroupListing):
    """A group with the sum of its lag in records. The lag is None if the group has no committed offset."""

    lag: int | None
    stable_lag: int | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. `epoch` is None in a classic group. `assignment` maps topics to partition indexes."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group has committed or that a member owns.

    `lag` counts records to the high watermark, `stable_lag` to the last stable offset, beyond which a read_committed
    consumer cannot read. An offset or lag is None if it is unknown. The member fields are None if no member owns the
    partition.
    """

    topic: str
    partition: int
    committed: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    stable_lag: int | None
    lag: int | None
    metadata: str | None
    member_id: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """A group with its members. `type` is `consumer` (KIP-848) or `classic`. `epoch` is None in a classic group."""

    group: str
    type: str
    state: str
    epoch: int | None
    assignor: str
    members: list[GroupMember]


@dataclass(frozen=True, slots=True)
class GroupDescription(GroupMembers):
    """A group with its members and partitions, in the order of topics and partition indexes."""

    partitions: list[GroupPartition]


async def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """Return the groups of all coordinators in the order of group ids. Empty `states` or `types` select all groups.

    Raises:
        InvalidArgument: Kafka has no such state or type.
        ClientError: A broker does not respond.
    """
    for kind, requested, existing in (("state", states, STATES), ("type", types, TYPES)):
        known = {word.lower() for word in existing}
        if unknown := [word for word in requested if word.lower() not in known]:
            raise InvalidArgument(f"no such {kind}: {', '.join(unknown)}; use one of {', '.join(existing)}")
    return await _listed(FanOut(cluster), states, types)


async def _listed(fan_out: FanOut, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    brokers = (await fan_out.cluster.fetch_metadata([])).brokers
    requests: dict[int, Message] = {
        node_id: ListGroupsRequest(states_filter=list(states), types_filter=list(types)) for node_id in brokers
    }
    rows = []
    responses = await fan_out.request_each(requests, retry_on=lambda response: response.error_code)
    for node_id, response in responses.items():
        if fan_out.tolerates(node_id, response.error_code):
            continue
        check(response.error_code, f"listing groups on broker {node_id}")
        rows += [
            GroupListing(group.group_id, group.group_type or "classic", group.protocol_type, group.group_state, node_id)
            for group in response.groups
        ]
    return sorted(rows, key=lambda row: row.group)


async def groups_with_lag(fan_out: FanOut, partitions: Iterable[PartitionDescription]) -> list[GroupLag]:
    """Return all groups with their lag, computed from the offsets of the given partitions."""
    ends = {(row.topic, row.partition): row for row in partitions}
    rows = await _listed(fan_out)
    by_node: dict[int, list[str]] = {}
    for row in rows:
        by_node.setdefault(row.coordinator, []).append(row.group)
    requests: dict[int, Message] = {
        node_id: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
        for node_id, names in by_node.items()
    }
    committed = {
        group.group_id: committed_by_partition(group)
        for response in (await fan_out.request_each(requests, version_max=NAMES_VERSION_MAX)).values()
        for group in response.groups
        if group.error_code == ErrorCode.NONE
    }
    found = []
    for row in rows:
        lags = [_partition(key, at, ends.get(key), None) for key, at in committed.get(row.group, {}).items()]
        lag, stable = sum(each.lag or 0 for each in lags), sum(each.stable_lag or 0 for each in lags)
        listed = (row.group, row.type, row.protocol_type, row.state, row.coordinator)
        found.append(GroupLag(*listed, lag if lags else None, stable if lags else None))
    return found


async def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """Return a group with its members, and with each partition that it has committed or that a member owns.

    Raises:
        NotFound: The group does not exist.
        ClientError: The coordinator or a leader does not respond.
    """
    found = await group_members(cluster, group)
    if found is None:
        raise NotFound(f"group {group} does not exist", LIST_REMEDY, code=ErrorCode.GROUP_ID_NOT_FOUND)
    committed = await committed_offsets(cluster, group)
    owners = {
        TopicPartition(topic, partition): member
        for member in found.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    names = sorted({topic for topic, _ in (*committed, *owners)})
    topics = [topic for topic in (await cluster.fetch_metadata(names)).topics.values() if not topic.error_code]
    rows = await partitions_with_offsets(FanOut(cluster), topics)
    ends = {(row.topic, row.partition): row for row in rows}
    partitions = [
        _partition(key, committed.get(key), ends.get(key), owners.get(key))
        for key in sorted(committed.keys() | owners.keys())
    ]
    described = (found.group, found.type, found.state, found.epoch, found.assignor, found.members)
    return GroupDescription(*described, partitions)


def _partition(
    key: tuple[str, int],
    committed: CommittedOffset | None,
    ends: PartitionDescription | None,
    owner: GroupMember | None,
) -> GroupPartition:
    offset = None if committed is None else committed.offset
    stable = None if ends is None else ends.last_stable_offset
    high = None if ends is None else ends.high_watermark
    return GroupPartition(
        *key,
        offset,
        stable,
        high,
        None if offset is None or stable is None else max(stable - offset, 0),
        None if offset is None or high is None else max(high - offset, 0),
        None if committed is None else committed.metadata,
        None if owner is None else owner.member_id,
        None if owner is None else owner.client_id,
        None if owner is None else owner.host,
    )


async def group_members(cluster: Cluster, group: str) -> GroupMembers | None:
    """Return a group of either protocol with its members, or None if it does not exist."""
    return await _consumer_group(cluster, group) or await _classic_group(cluster, group)


async def _consumer_group(cluster: Cluster, group: str) -> GroupMembers | None:
    """Return a group of the consumer protocol (KIP-848), or None if there is none or the broker has no such groups."""
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    try:
        response = await cluster.request_coordinator(CoordinatorType.GROUP, group, request, _first_group_error)
    except UnsupportedRequest:
        return None
    found = response.groups[0]
    if found.error_code in ABSENT:
        return None
    check(found.error_code, f"group {group}", found.error_message)
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            {each.topic_name: each.partitions for each in member.assignment.topic_partitions},
        )
        for member in found.members
    ]
    return GroupMembers(group, "consumer", found.group_state, found.group_epoch, found.assignor_name, members)


async def _classic_group(cluster: Cluster, group: str) -> GroupMembers | None:
    """Return a classic group or a group that has only committed offsets, or None if there is none."""
    request = DescribeGroupsRequest(groups=[group])
    response = await cluster.request_coordinator(CoordinatorType.GROUP, group, request, _first_group_error)
    found = response.groups[0]
    if found.error_code in ABSENT or (found.group_state == "Dead" and not found.members):
        return None
    check(found.error_code, f"group {group}", found.error_message)
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
    return GroupMembers(group, "classic", found.group_state, None, found.protocol_data, members)


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


async def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group with its committed offsets. Raise NotFound if it does not exist, Refused if it has members."""
    response = await cluster.request_coordinator(
        CoordinatorType.GROUP,
        group,
        DeleteGroupsRequest(groups_names=[group]),
        lambda response: int(response.results[0].error_code),
    )
    result = response.results[0]
    code = result.error_code
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise Refused(f"group {group} has members or open transactions", "stop its consumers first", code=code)
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotFound(f"group {group} does not exist", LIST_REMEDY, code=code)
    check(code, f"group {group} was not deleted", result.error_message)
