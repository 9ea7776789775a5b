"""Groups of both protocols: who is in them, what they have committed, and how far behind that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.client import topics as topic_admin
from odradek.client.client import GROUP_KEY, Cluster, Failed, NotServed, Unaskable, check, patiently
from odradek.protocol.consumer_protocol import assignment_of
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from odradek.protocol.messages.offset_fetch import OffsetFetchResponseGroup

    Committed = dict[tuple[str, int], tuple[int, str]]
    """Topic and partition -> offset and metadata."""

NAMES_UP_TO = 9
"""From v10 on OffsetFetch and OffsetCommit name topics by id, which a topic that was deleted has no more."""
CONSUMER_TYPE = "consumer"
CONSUMER_PROTOCOL = "consumer"
NO_OFFSET = -1
STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
TYPES = ("classic", "consumer", "share", "streams")
"""What Kafka's groups may be listed by. A broker answers to any other word that there are none."""
ABSENT = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


def listing(cluster: Cluster, states: Sequence[str], types: Sequence[str]) -> list[dict[str, Any]]:
    """What every coordinator knows, by group id. Raises Unaskable."""
    for kind, wanted, there in (("state", states, STATES), ("type", types, TYPES)):
        known = {word.lower() for word in there}
        if unknown := [word for word in wanted if word.lower() not in known]:
            raise Unaskable(f"no such {kind}: {', '.join(unknown)}; there are {', '.join(there)}")
    rows = []
    for broker in sorted(cluster.metadata.brokers, key=lambda broker: broker.node_id):
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        def ask(node_id: int = broker.node_id, request: ListGroupsRequest = request) -> Any:
            return cluster.ask(node_id, request)

        answer = patiently(ask, lambda answer: ErrorCode.NONE if answer is None else answer.error_code)
        if answer is None:
            continue
        check(answer.error_code, f"listing groups on broker {broker.node_id}")
        rows += [
            {
                "group": group.group_id,
                "type": group.group_type or "classic",
                "protocol_type": group.protocol_type,
                "state": group.group_state,
                "coordinator": broker.node_id,
            }
            for group in answer.groups
        ]
    return sorted(rows, key=lambda row: str(row["group"]))


def with_lag(cluster: Cluster, partitions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every group with the sum of its lag, by the offsets of `partitions` (`topics.partitions`)."""
    ends = {(row["topic"], row["partition"]): row for row in partitions}
    rows = listing(cluster, (), ())
    by_node: dict[int, list[str]] = {}
    for row in rows:
        by_node.setdefault(row["coordinator"], []).append(row["group"])
    committed: dict[str, Committed] = {}
    for node_id, names in by_node.items():
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        answer = cluster.ask(node_id, OffsetFetchRequest(groups=groups))
        for group in answer.groups if answer is not None else ():
            if group.error_code == ErrorCode.NONE:
                committed[group.group_id] = by_partition(group)
    for row in rows:
        lags = [lag_row(key, at, ends.get(key, {})) for key, at in committed.get(row["group"], {}).items()]
        for name in ("lag", "stable_lag"):
            row[name] = sum(lag[name] or 0 for lag in lags) if lags else None
    return rows


def describe(cluster: Cluster, group: str) -> dict[str, Any]:
    """State, members and, a row a partition, what is committed and how far behind that is. Raises Failed: no such group."""
    found = modern(cluster, group) or classic(cluster, group)
    committed = committed_offsets(cluster, group)
    if found is None:
        raise Failed(f"group {group} does not exist; the groups that there are: odradek groups list")
    owners = {
        (topic, partition): member
        for member in found["members"]
        for topic, partitions in member["assignment"].items()
        for partition in partitions
    }
    names = {topic for topic, _ in (*committed, *owners)}
    found["partitions"] = [
        row
        | {
            "member_id": owners.get((row["topic"], row["partition"]), {}).get("member_id"),
            "client_id": owners.get((row["topic"], row["partition"]), {}).get("client_id"),
            "host": owners.get((row["topic"], row["partition"]), {}).get("host"),
        }
        for row in lag_rows(cluster, committed, [*committed, *owners], existing(cluster, names))
    ]
    return found


def modern(cluster: Cluster, group: str) -> dict[str, Any] | None:
    """A group of KIP-848; None when it is none."""
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    try:
        answer = cluster.ask_coordinator(group, GROUP_KEY, request, lambda answer: answer.groups[0].error_code)
    except NotServed:
        return None
    described = answer.groups[0]
    if described.error_code in ABSENT:
        return None
    check(described.error_code, f"group {group}", described.error_message)
    return {
        "group": group,
        "type": CONSUMER_TYPE,
        "state": described.group_state,
        "epoch": described.group_epoch,
        "assignor": described.assignor_name,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "assignment": {each.topic_name: each.partitions for each in member.assignment.topic_partitions},
            }
            for member in described.members
        ],
    }


def classic(cluster: Cluster, group: str) -> dict[str, Any] | None:
    """A group of the classic protocol, or of offsets alone; None when there is none."""
    request = DescribeGroupsRequest(groups=[group])
    answer = cluster.ask_coordinator(group, GROUP_KEY, request, lambda answer: answer.groups[0].error_code)
    described = answer.groups[0]
    if described.error_code in ABSENT or (described.group_state == "Dead" and not described.members):
        return None
    check(described.error_code, f"group {group}", described.error_message)
    speaks = described.protocol_type == CONSUMER_PROTOCOL
    return {
        "group": group,
        "type": "classic",
        "state": described.group_state,
        "epoch": None,
        "assignor": described.protocol_data,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "epoch": None,
                "assignment": assigned(bytes(member.member_assignment)) if speaks else {},
            }
            for member in described.members
        ],
    }


def assigned(data: bytes) -> dict[str, list[int]]:
    """What the leader of a classic group gave to a member; nothing while that is not decided, or not in Kafka's form."""
    try:
        return {each.topic: each.partitions for each in assignment_of(data).assigned_partitions} if data else {}
    except Malformed:
        return {}


def committed_offsets(cluster: Cluster, group: str) -> Committed:
    """Everything that the group has committed; what hangs on an open transaction is not yet."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = cluster.ask_coordinator(
        group, GROUP_KEY, request, lambda answer: answer.groups[0].error_code, version_max=NAMES_UP_TO
    )
    if answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(answer.groups[0].error_code, f"offsets of group {group}")
    return by_partition(answer.groups[0])


def by_partition(group: OffsetFetchResponseGroup) -> Committed:
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.metadata or "")
        for topic in group.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE and partition.committed_offset != NO_OFFSET
    }


def existing(cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Those of the topics that (still) exist."""
    answer = cluster.refresh(sorted(names))
    return sorted(topic.name or "" for topic in answer.topics if topic.error_code == ErrorCode.NONE)


def lag_rows(
    cluster: Cluster, committed: Committed, wanted: Iterable[tuple[str, int]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of the wanted partitions, with the ends of the `names` topics."""
    rows = topic_admin.partitions(cluster, names) if names else []
    ends = {(row["topic"], row["partition"]): row for row in rows}
    return [lag_row(key, committed.get(key), ends.get(key, {})) for key in sorted(dict.fromkeys(wanted))]


def lag_row(key: tuple[str, int], committed: tuple[int, str] | None, ends: Mapping[str, Any]) -> dict[str, Any]:
    """One partition: lag counts to the high watermark, stable lag to the last stable offset, beyond which nobody may read
    who reads what is committed. None where there is nothing to count.
    """
    offset = None if committed is None else committed[0]
    stable, high = ends.get("last_stable_offset"), ends.get("high_watermark")
    return {
        "topic": key[0],
        "partition": key[1],
        "committed": offset,
        "last_stable_offset": stable,
        "high_watermark": high,
        "stable_lag": None if offset is None or stable is None else max(stable - offset, 0),
        "lag": None if offset is None or high is None else max(high - offset, 0),
        "metadata": None if committed is None else committed[1],
    }


def delete(cluster: Cluster, group: str) -> dict[str, Any]:
    """Delete a group that nobody is in. Raises Failed."""
    request = DeleteGroupsRequest(groups_names=[group])
    answer = cluster.ask_coordinator(group, GROUP_KEY, request, lambda answer: answer.results[0].error_code)
    code = answer.results[0].error_code
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise Failed(f"group {group} has members or open transactions; stop its consumers first")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise Failed(f"group {group} does not exist; the groups that there are: odradek groups list")
    check(code, f"group {group} was not deleted")
    return {"group": group, "deleted": True}
