"""OffsetFetch and OffsetCommit of simulated clients. Each request is an operation in the history."""

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
    """Send an OffsetFetch. The operation holds the offset of each partition that has one."""
    groups = client.world.monitor.groups
    operation = client.invoke(OFFSETS, group=group, partitions=tuple(partitions), stable=stable, final=final)
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    group_request = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member.member_id if member is not None else None,
        member_epoch=member.epoch if member is not None else -1,
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
    )
    try:
        node = operation.node = await client.group_coordinator_of(group)
        led_before = groups.leads(group, node)
        pending = groups.pending_offsets(group, node)
        response = await client.call(
            OffsetFetchRequest(groups=[group_request], require_stable=stable), FETCH_VERSION, node
        )
    except OSError as error:
        return client.settle_lost(operation, error)
    operation.coordinated = led_before and groups.leads(group, node)
    (group_response,) = response.groups
    if group_response.error_code != NONE:
        return client.settle(operation, group_response.error_code)
    rows = [((topic.name, row.partition_index), row) for topic in group_response.topics for row in topic.partitions]
    code = next((row.error_code for _, row in rows if row.error_code != NONE), NONE)
    if code == UNSTABLE_OFFSET_COMMIT:
        client.world.count("offsets pending in an open transaction withheld")
    offsets = tuple(
        (place, row.committed_offset) for place, row in rows if row.error_code == NONE and row.committed_offset >= 0
    )
    if stable and operation.coordinated:
        groups.check_stable(operation, pending, [place for place, row in rows if row.error_code == NONE])
    return client.settle(operation, code, offsets=offsets)


async def commit_offsets(
    client: "Client", member: "Membership", offsets: Mapping[Partition, int], *, kind: str = COMMIT
) -> Operation:
    """Send an OffsetCommit, of a member or of a simple consumer."""
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
    codes = [row.error_code for topic in response.topics for row in topic.partitions]
    code = next((row for row in codes if row != NONE), NONE)
    if code in FENCED_MEMBER and kind == COMMIT:
        client.world.count("commit of a fenced member refused")
    return client.settle(operation, code)
