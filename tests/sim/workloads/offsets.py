"""Reading and committing the offsets of a group, one request at a time, each an operation of the history."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.sim.history import COMMIT, OFFSETS, Operation, Partition
from tests.sim.workloads.client import FENCED_MEMBER, NONE, UNSTABLE_OFFSET_COMMIT

if TYPE_CHECKING:
    from tests.sim.workloads.client import Client
    from tests.sim.workloads.membership import Membership

FETCH_VERSION: Final = 9
COMMIT_VERSION: Final = 9


async def fetch_offsets(
    client: "Client",
    group: str,
    partitions: Sequence[Partition],
    *,
    stable: bool,
    member: "Membership | None" = None,
    final: bool = False,
) -> Operation:
    """OffsetFetch. The operation holds the offset of each partition that has one."""
    groups = client.world.monitor.groups
    operation = client.invoke(OFFSETS, group=group, partitions=tuple(partitions), stable=stable, final=final)
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    asked = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member.member_id if member is not None else None,
        member_epoch=member.epoch if member is not None else -1,
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
    )
    try:
        node = operation.node = await client.group_coordinator_of(group)
        before = groups.leads(group, node)
        pending = groups.pending_offsets(group, node)
        response = await client.call(OffsetFetchRequest(groups=[asked], require_stable=stable), FETCH_VERSION, node)
    except OSError as error:
        return client.settle_lost(operation, error)
    operation.coordinated = before and groups.leads(group, node)
    (answer,) = response.groups
    if answer.error_code != NONE:
        return client.settle(operation, answer.error_code)
    rows = [((topic.name, each.partition_index), each) for topic in answer.topics for each in topic.partitions]
    code = next((each.error_code for _, each in rows if each.error_code != NONE), NONE)
    if code == UNSTABLE_OFFSET_COMMIT:
        client.world.count("offsets that hang on an open transaction withheld")
    told = tuple(
        (place, each.committed_offset) for place, each in rows if each.error_code == NONE and each.committed_offset >= 0
    )
    if stable and operation.coordinated:
        groups.check_stable(operation, pending, [place for place, each in rows if each.error_code == NONE])
    return client.settle(operation, code, offsets=told)


async def commit_offsets(
    client: "Client", member: "Membership", offsets: Mapping[Partition, int], *, kind: str = COMMIT
) -> Operation:
    """OffsetCommit of a member, or of somebody who is none."""
    operation = client.invoke(
        kind,
        group=member.group,
        member=member.member_id,
        instance=member.instance_id or "",
        member_epoch=member.epoch,
        offsets=tuple(offsets.items()),
    )
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )
    try:
        node = operation.node = await client.group_coordinator_of(member.group)
        response = await client.call(request, COMMIT_VERSION, node)
    except OSError as error:
        return client.settle_lost(operation, error)
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    code = next((each for each in codes if each != NONE), NONE)
    if code in FENCED_MEMBER and kind == COMMIT:
        client.world.count("commit of a fenced member refused")
    return client.settle(operation, code)
