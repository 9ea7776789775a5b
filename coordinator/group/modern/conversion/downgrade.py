"""A consumer group becomes a classic group when its last member of the consumer protocol is gone (KIP-848)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from odradek.coordinator.group.classic.commands import JoinTimeout, join_key, session_timer
from odradek.coordinator.group.classic.member import Member as ClassicGroupMember
from odradek.coordinator.group.classic.records import group_record
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.modern.conversion.consumer_protocol import written_assignment
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.state import CONSUMER_PROTOCOL
from odradek.protocol.consumer_protocol import version_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.runtime.shard import Timer

DOWNGRADES: Final = ("downgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow it."""


def may_downgrade(draft: ConsumerDraft, leaving: Mapping[str, Member]) -> bool:
    """Without `leaving`, are there members, and only such of the classic protocol?"""
    group = draft.group
    left = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.uses_classic for member in leaving.values())
    return 0 < left == classic and _is_allowed(draft, left)


def may_downgrade_by(draft: ConsumerDraft, replaced: Member) -> bool:
    """`replaced`, a static member, will speak the classic protocol: do all the others already?"""
    group = draft.group
    others = len(group.members) - 1
    return not replaced.uses_classic and group.classic_members == others and _is_allowed(draft, others + 1)


def _is_allowed(draft: ConsumerDraft, size: int) -> bool:
    config = draft.state.configs.broker()
    return config.consumer_migration_policy.lower() in DOWNGRADES and size <= config.group_max_size


def is_settled(group: ConsumerGroup, replaced: Member) -> bool:
    """Do all but `replaced` have what they are to have? As members of a classic group they would not ask for more, nor be
    asked to give up anything, before they rebalance. (Kafka does not look, and leaves them as they are.)
    """
    others = (member for member in group.members.values() if member.member_id != replaced.member_id)
    return all(member.is_reconciled_to(group.epoch) for member in others)


def to_classic(
    draft: ConsumerDraft, leaving: Mapping[str, Member], *, joining: Member | None = None, rebalance: bool
) -> None:
    """Everybody keeps what he holds. Raises Refusal(GROUP_ID_NOT_FOUND) when a member's metadata cannot be read.

    `joining` takes the place of the static member with its instance id.
    """
    group = draft.group
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = {replaced.member_id: joining.member_id} if replaced is not None and joining is not None else {}
    classic = ClassicGroup(
        group.group_id,
        state=ClassicState.STABLE,
        protocol_type=CONSUMER_PROTOCOL,
        generation=group.epoch,
        state_ms=draft.now_ms,
    )
    staying = [member for member in group.members.values() if member.member_id not in {**leaving, **renamed}]
    members = {member.member_id: member for member in (*staying, *(() if joining is None else (joining,)))}
    for member in members.values():
        classic.add(_classic_member(member), CONSUMER_PROTOCOL)
    classic.protocol_name = classic.select_protocol()
    for each in tuple(classic.members.values()):
        try:
            version = version_of(each.metadata(classic.protocol_name))
        except Malformed as malformed:
            raise Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the group {group.group_id}: {malformed}."
            ) from malformed
        assignment = written_assignment(members[each.member_id].held, draft.state.topics, version)
        classic.put(replace(each, assignment=assignment))
    classic.update_topics()
    record = group_record(replace(classic, leader=None) if rebalance else classic, detail=classic)
    draft.records += (*group.tombstones(renamed), record)
    for member_id in group.members:
        draft.stop_all(member_id)
    _start(draft, classic, rebalance=rebalance)


def _start(draft: ConsumerDraft, classic: ClassicGroup, *, rebalance: bool) -> None:
    """With the record, and not after it: who asks in between must not be told partitions that others have to give up."""
    group_id = classic.group_id
    draft.timers += (
        session_timer(group_id, member.member_id, member.session_timeout_ms) for member in classic.members.values()
    )
    if rebalance:
        classic.enter(ClassicState.PREPARING, draft.now_ms)
        command, delay_ms = JoinTimeout(group_id), classic.rebalance_timeout_ms
        draft.timers.append(Timer(join_key(group_id), delay_ms=delay_ms, command=command))


def _classic_member(member: Member) -> ClassicGroupMember:
    assert member.classic is not None
    return ClassicGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )
