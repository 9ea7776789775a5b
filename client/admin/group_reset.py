"""Reset of a group's committed offsets, by the rules of kafka-consumer-groups."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from odradek.client.admin.group_members import group_members
from odradek.client.admin.group_offsets import CommittedOffset, PlannedOffset, committed_offsets
from odradek.client.admin.groups import INACTIVE_STATES
from odradek.client.admin.offsets import EARLIEST, LATEST, fetch_offsets
from odradek.client.admin.topics import topics_named
from odradek.client.errors import ClientError, InvalidArgument, Refused
from odradek.client.network.fan_out import FanOut, gathered
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import NO_COMMITTED_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from odradek.client.network.cluster import Cluster


class ResetTarget(Enum):
    """Rule for a new offset. It is limited to the offsets that the log has."""

    EARLIEST = "the log start offset"
    LATEST = "the high watermark"
    CURRENT = "the committed offset; the high watermark if there is none"
    OFFSET = "the given offset"
    SHIFT = "the committed offset plus the given number, which may be negative"
    TIMESTAMP = "the offset of the first record at or after the given time in milliseconds since 1970"


async def plan_offset_reset(
    cluster: Cluster,
    group: str,
    target: ResetTarget,
    value: int | None = None,
    scope: Mapping[str, Sequence[int]] | None = None,
) -> list[PlannedOffset]:
    """Return the offsets of a reset, which `commit_offsets` carries out.

    Args:
        cluster: The cluster.
        group: The group id.
        target: The rule for the new offsets.
        value: The argument of OFFSET, SHIFT and TIMESTAMP.
        scope: Partition indexes by topic. An empty list selects all partitions of the topic, and None selects the
            partitions with a committed offset.

    Raises:
        Refused: The group has members.
        NotFound: A topic or partition does not exist.
        ClientError: The group has no committed offset to reset or shift, or a partition has no leader.
    """
    committed = await _committed_without_members(cluster, group)
    wanted = await _partitions(cluster, scope, committed)
    offsets = await _new_offsets(cluster, target, value, wanted, committed)
    return _planned(offsets, committed)


async def plan_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> list[PlannedOffset]:
    """Return the given offsets, limited to those that the logs have, as a plan for `commit_offsets`."""
    committed = await _committed_without_members(cluster, group)
    first, last = await _ends(cluster, list(offsets))
    limited = {key: min(max(offset, first[key]), last[key]) for key, offset in offsets.items()}
    return _planned(limited, committed)


async def _committed_without_members(cluster: Cluster, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets. Raise Refused if the group has members, whose commits would overwrite a reset."""
    found = await group_members(cluster, group)
    if found is not None and found.state not in INACTIVE_STATES:
        problem = f"offsets of group {group} can only be reset while it has no members, and it is {found.state}"
        raise Refused(problem, "stop its consumers first", code=ErrorCode.NON_EMPTY_GROUP)
    return await committed_offsets(cluster, group)


def _planned(
    offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommittedOffset]
) -> list[PlannedOffset]:
    return [
        PlannedOffset(*key, committed[key].offset if key in committed else None, new)
        for key, new in sorted(offsets.items())
    ]


async def _partitions(
    cluster: Cluster, scope: Mapping[str, Sequence[int]] | None, committed: Mapping[TopicPartition, CommittedOffset]
) -> list[TopicPartition]:
    if scope is None:
        if not committed:
            raise ClientError("the group has no committed offsets to reset", "specify topics with --topic")
        return sorted(committed)
    found: dict[TopicPartition, None] = {}
    for topic in await topics_named(cluster, list(scope)):
        for index in scope[topic.name] or list(topic.partitions):
            found[TopicPartition(topic.name, topic.partition(index).index)] = None
    return sorted(found)


async def _new_offsets(
    cluster: Cluster,
    target: ResetTarget,
    value: int | None,
    wanted: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, int]:
    first, last = await _ends(cluster, wanted)

    def limited(choose: Callable[[TopicPartition], int]) -> dict[TopicPartition, int]:
        return {key: min(max(choose(key), first[key]), last[key]) for key in wanted}

    match target:
        case ResetTarget.EARLIEST:
            return {key: first[key] for key in wanted}
        case ResetTarget.LATEST:
            return {key: last[key] for key in wanted}
        case ResetTarget.CURRENT:
            return limited(lambda key: committed[key].offset if key in committed else last[key])
    if value is None:
        raise InvalidArgument(f"a reset to {target.value} needs a number")
    if target is ResetTarget.OFFSET:
        return limited(lambda _: value)
    if target is ResetTarget.SHIFT:
        if missing := [key for key in wanted if key not in committed]:
            raise ClientError(f"cannot shift {missing[0]}: the group has no committed offset for it")
        return limited(lambda key: committed[key].offset + value)
    topics = await topics_named(cluster, sorted({key.topic for key in wanted}))
    found = await fetch_offsets(FanOut(cluster), topics, value)
    return {key: last[key] if found.get(key, NO_COMMITTED_OFFSET) < 0 else found[key] for key in wanted}


async def _ends(
    cluster: Cluster, wanted: Sequence[TopicPartition]
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Return the log start offsets and the high watermarks of the partitions. Raise NotFound if one is missing."""
    topics = await topics_named(cluster, sorted({key.topic for key in wanted}))
    for topic in topics:
        for key in wanted:
            if key.topic == topic.name:
                topic.partition(key.partition)
    first, last = await gathered(
        fetch_offsets(FanOut(cluster), topics, EARLIEST), fetch_offsets(FanOut(cluster), topics, LATEST)
    )
    if missing := [key for key in wanted if key not in first or key not in last]:
        remedy = f"see: odradek topics describe {missing[0].topic}"
        raise Refused(f"{missing[0]} has no leader that responds", remedy, code=ErrorCode.LEADER_NOT_AVAILABLE)
    return first, last
