"""Groups: list, describe members and lag, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.admin.group_members import GroupListing, GroupMember, GroupMembers, group_members
from odradek.client.admin.group_offsets import (
    NAMES_VERSION_MAX,
    CommittedOffset,
    committed_by_partition,
    committed_offsets,
    share_offsets,
)
from odradek.client.admin.offsets import ends_of_partitions
from odradek.client.errors import InvalidArgument, NotFound, Refused, check
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
Ends = tuple[int | None, int | None]
"""Last stable offset and high watermark of a partition. None: its leader did not return it."""
NO_ENDS: Final[Ends] = (None, None)
LIST_REMEDY: Final = "list the groups with: odradek groups list"


@dataclass(frozen=True, slots=True)
class GroupLag(GroupListing):
    """A group with the sum of its lag in records, over the partitions whose lag is known.

    The lag is None if it is known of no partition, or if the group has no committed offset.
    """

    lag: int | None
    stable_lag: int | None


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
    return await listed_groups(FanOut(cluster), states, types)


async def listed_groups(fan_out: FanOut, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """Return the groups of the coordinators that respond, as `list_groups`."""
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
    ends = {(row.topic, row.partition): (row.last_stable_offset, row.high_watermark) for row in partitions}
    rows = await listed_groups(fan_out)
    return with_lag(rows, await committed_of_groups(fan_out, rows), ends)


async def committed_of_groups(
    fan_out: FanOut, rows: Iterable[GroupListing]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Return the committed offsets of listed groups."""
    by_node: dict[int, list[str]] = {}
    for row in rows:
        by_node.setdefault(row.coordinator, []).append(row.group)
    responses = await fan_out.request_names(by_node, _committed_request, version_max=NAMES_VERSION_MAX)
    return {
        group.group_id: committed_by_partition(group)
        for _, response in responses
        for group in response.groups
        if group.error_code == ErrorCode.NONE
    }


def _committed_request(names: list[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])


def with_lag(
    rows: Iterable[GroupListing],
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    ends: Mapping[tuple[str, int], Ends],
) -> list[GroupLag]:
    """Return listed groups with their lag. `ends` has the last stable offset and the high watermark by partition."""
    found = []
    for row in rows:
        lags = [_partition(key, at, ends.get(key, NO_ENDS), None) for key, at in committed.get(row.group, {}).items()]
        listed = (row.group, row.type, row.protocol_type, row.state, row.coordinator)
        found.append(GroupLag(*listed, total(each.lag for each in lags), total(each.stable_lag for each in lags)))
    return found


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the known numbers, or None if none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


async def describe_group(cluster: Cluster, group: str, leaders: FanOut | None = None) -> GroupDescription:
    """Return a group with its members, and with each partition that it has committed or that a member owns.

    `leaders` sends the requests to the leaders of the partitions. If it is tolerant, offsets of leaders that do not
    respond are None.

    Raises:
        NotFound: The group does not exist.
        ClientError: The coordinator or a leader does not respond.
    """
    found = await group_members(cluster, group)
    if found is None:
        raise NotFound(f"group {group} does not exist", LIST_REMEDY, code=ErrorCode.GROUP_ID_NOT_FOUND)
    committed = await (share_offsets if found.type == "share" else committed_offsets)(cluster, group)
    owners = {
        TopicPartition(topic, partition): member
        for member in found.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    names = sorted({topic for topic, _ in (*committed, *owners)})
    topics = [topic for topic in (await cluster.fetch_metadata(names)).topics.values() if not topic.error_code]
    ends = await ends_of_partitions(leaders or FanOut(cluster), topics)
    if found.type == "streams":
        existing = {TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions}
        owners = {key: member for key, member in owners.items() if key in existing}
    partitions = [
        _partition(key, committed.get(key), ends.get(key, NO_ENDS), owners.get(key))
        for key in sorted(committed.keys() | owners.keys())
    ]
    described = (found.group, found.type, found.state, found.epoch, found.assignor, found.members)
    return GroupDescription(*described, partitions)


def _partition(
    key: tuple[str, int],
    committed: CommittedOffset | None,
    ends: Ends,
    owner: GroupMember | None,
) -> GroupPartition:
    offset = None if committed is None else committed.offset
    stable, high = ends
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
