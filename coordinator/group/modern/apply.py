"""Apply the records of consumer groups. Only these functions change the hard state of a consumer group."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.member import NO_MEMBER_EPOCH, NO_PARTITIONS, Member, MemberState
from odradek.coordinator.group.modern.state import ConsumerGroup, ResolvedRegex
from odradek.coordinator.group.records import Entry, check_epoch
from odradek.coordinator.group.state import State
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_group_current_member_assignment import ConsumerGroupCurrentMemberAssignmentKey
from odradek.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey
from odradek.protocol.records.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from odradek.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey
from odradek.protocol.records.consumer_group_target_assignment_member import ConsumerGroupTargetAssignmentMemberKey
from odradek.protocol.records.consumer_group_target_assignment_metadata import ConsumerGroupTargetAssignmentMetadataKey


def _existing(state: State, group_id: str) -> ConsumerGroup | None:
    """Return the consumer group of a tombstone. Return None for a classic group, which is newer than the tombstone."""
    group = state.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _group(state: State, group_id: str) -> ConsumerGroup:
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if isinstance(group, ClassicGroup) and not group.is_empty:
        raise Malformed(f"a record of a consumer group for the classic group {group_id}, which has members")
    new = state.groups[group_id] = ConsumerGroup(group_id)
    return new


def apply_group(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    group_id = entry.key.group_id
    if entry.value is None:
        if _existing(state, group_id) is not None:
            del state.groups[group_id]
        return
    group = _group(state, group_id)
    group.epoch = check_epoch(entry.value.epoch)
    group.metadata_hash = entry.value.metadata_hash


def apply_partition_metadata(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    group = _existing(state, entry.key.group_id) if entry.value is None else _group(state, entry.key.group_id)
    if group is not None:
        group.has_partition_metadata = entry.value is not None


def apply_member(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    group_id, member_id, value = entry.key.group_id, entry.key.member_id, entry.value
    if value is None:
        group = _existing(state, group_id)
        if group is not None and member_id in group.members:
            group.drop_member(member_id)
        return
    group = _group(state, group_id)
    group.put_member(
        replace(
            group.members.get(member_id) or Member(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(dict.fromkeys(value.subscribed_topic_names))),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=r.classic_member(value),
        )
    )


def apply_target(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    if entry.value is not None:
        _group(state, entry.key.group_id).targets[entry.key.member_id] = r.target_of(entry.value)
        return
    group = _existing(state, entry.key.group_id)
    if group is not None:
        group.targets.pop(entry.key.member_id, None)


def apply_target_metadata(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    if entry.value is not None:
        group = _group(state, entry.key.group_id)
        group.assignment_epoch = check_epoch(entry.value.assignment_epoch)
        group.assignment_ms = entry.value.assignment_timestamp


def apply_current(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    group_id, member_id, value = entry.key.group_id, entry.key.member_id, entry.value
    if value is None:
        group = _existing(state, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            group.put_member(
                replace(
                    member,
                    epoch=NO_MEMBER_EPOCH,
                    previous_epoch=NO_MEMBER_EPOCH,
                    assigned=NO_PARTITIONS,
                    revoking=NO_PARTITIONS,
                )
            )
        return
    group = _group(state, group_id)
    group.put_member(
        replace(
            group.members.get(member_id) or Member(member_id),
            epoch=check_epoch(value.member_epoch),
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=r.partitions_of(value.assigned_partitions, value.member_epoch),
            revoking=r.partitions_of(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def apply_regex(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    value = entry.value
    group = _existing(state, entry.key.group_id) if value is None else _group(state, entry.key.group_id)
    if group is not None:
        resolved = None if value is None else ResolvedRegex(tuple(value.topics), value.version, value.timestamp)
        group.put_regex(entry.key.regular_expression, resolved)


APPLICATIONS: Final[dict[type[Any], Callable[[State, int, Entry, int], None]]] = {
    ConsumerGroupMetadataKey: apply_group,
    ConsumerGroupPartitionMetadataKey: apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: apply_target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: apply_current,
    ConsumerGroupRegularExpressionKey: apply_regex,
}
