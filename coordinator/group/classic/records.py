"""Encode a classic group as a GroupMetadata record (version 3), and restore it."""

from collections.abc import Mapping
from typing import Any, Final

from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.records import check_epoch, to_record
from odradek.frozen import frozen_dataclass
from odradek.protocol.batch import NO_TIMESTAMP
from odradek.protocol.errors import Malformed
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from odradek.runtime.shard import ShardRecord

VERSION: Final = 3


@frozen_dataclass(frozen=True, slots=True)
class Assigned:
    """Detail of a record for `apply`: the leader's assignments."""

    assignments: Mapping[str, bytes]
    now_ms: int


@frozen_dataclass(frozen=True, slots=True)
class Emptied:
    """Detail of a record for `apply`: a soft change of the same decision has already emptied the group in memory."""


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None, *, detail: Any) -> ShardRecord:
    """Return the record of `group`. `assignments` replaces the members' assignments: member id -> assignment."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=NO_TIMESTAMP if group.state_ms is None else group.state_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return to_record(GroupMetadataKey(group=group.group_id), value, VERSION, detail=detail)


def new_group_record(group: ClassicGroup, now_ms: int) -> ShardRecord:
    """Return the record of a new group without members."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now_ms
    )
    return to_record(GroupMetadataKey(group=group.group_id), value, VERSION, detail=group)


def restored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record. The record has only the selected protocol of each member.

    Members without a leader come from a converted consumer group, and must rebalance. (Kafka writes a leader, and a new
    coordinator treats the group as stable.)

    Raises:
        Malformed: The generation is too large, two members have the same id, or the leader is not a member.
    """
    _check(value)
    with_members = ClassicState.PREPARING if value.leader is None else ClassicState.STABLE
    group = ClassicGroup(
        group_id,
        state=with_members if value.members else ClassicState.EMPTY,
        protocol_type=value.protocol_type,
        protocol_name=value.protocol,
        generation=value.generation,
        leader=value.leader,
        state_ms=None if value.current_state_timestamp == NO_TIMESTAMP else value.current_state_timestamp,
    )
    for member in value.members:
        rebalance_timeout_ms = member.rebalance_timeout
        group.add(
            Member(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.session_timeout
                if rebalance_timeout_ms == NO_TIMESTAMP
                else rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", bytes(member.subscription)),),
                assignment=bytes(member.assignment),
            ),
            value.protocol_type,
        )
    group.update_topics()
    return group


def _check(value: GroupMetadataValue) -> None:
    check_epoch(value.generation)
    member_ids = {member.member_id for member in value.members}
    instance_ids = [member.group_instance_id for member in value.members if member.group_instance_id is not None]
    if len(member_ids) < len(value.members) or len(set(instance_ids)) < len(instance_ids):
        raise Malformed("GroupMetadataValue has two members with the same member id or the same group instance id")
    if value.members and value.leader is not None and value.leader not in member_ids:
        raise Malformed(f"GroupMetadataValue has the leader {value.leader[:100]!r}, which is not a member")
