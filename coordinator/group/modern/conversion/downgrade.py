"""Convert a consumer group into a classic group when its last member of the consumer protocol leaves (KIP-848)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from odradek.coordinator.group.classic.commands import JoinTimeout, join_key, session_timer
from odradek.coordinator.group.classic.member import Member as ClassicGroupMember
from odradek.coordinator.group.classic.records import group_record
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.modern.conversion.consumer_protocol import encode_member_assignment
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL, version_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.runtime.shard import Timer

DOWNGRADES: Final = ("downgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow this conversion."""


def may_downgrade(draft: ConsumerDraft, leaving: Mapping[str, Member]) -> bool:
    """Return True if only members of the classic protocol stay in the group without `leaving`."""
    group = draft.group
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.uses_classic for member in leaving.values())
    return 0 < staying == classic and _is_allowed(draft, staying)


def may_downgrade_by(draft: ConsumerDraft, replaced: Member) -> bool:
    """Return True if only members of the classic protocol stay when a classic member replaces the member `replaced`."""
    group = draft.group
    others = len(group.members) - 1
    return not replaced.uses_classic and group.classic_members == others and _is_allowed(draft, others + 1)


def _is_allowed(draft: ConsumerDraft, size: int) -> bool:
    config = draft.state.configs.broker()
    return config.consumer_migration_policy.lower() in DOWNGRADES and size <= config.group_max_size


def others_are_reconciled(group: ConsumerGroup, replaced: Member) -> bool:
    """Return True if all members except `replaced` have their target assignments.

    In a classic group, members receive and revoke partitions only in a rebalance. If one is missing, the new group must
    rebalance. (Kafka does not check this.)
    """
    others = (member for member in group.members.values() if member.member_id != replaced.member_id)
    return all(member.is_reconciled_to(group.epoch) for member in others)


def convert_to_classic(
    draft: ConsumerDraft, leaving: Mapping[str, Member], *, joining: Member | None = None, rebalance: bool
) -> None:
    """Replace the group by a classic group in which all members keep their partitions.

    `joining` replaces the static member with its instance id. Raise Refusal(GROUP_ID_NOT_FOUND) if the metadata of a
    member cannot be decoded, or if the members have no protocol in common.
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
    supported = [{name for name, _ in member.protocols} for member in classic.members.values()]
    if not set.intersection(*supported):
        raise Refusal(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot downgrade the group {group.group_id}: its members have no protocol in common.",
        )
    classic.protocol_name = classic.select_protocol()
    for classic_member in tuple(classic.members.values()):
        try:
            version = version_of(classic_member.metadata(classic.protocol_name))
        except Malformed as malformed:
            raise Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the group {group.group_id}: {malformed}."
            ) from malformed
        assignment = encode_member_assignment(members[classic_member.member_id].held, draft.state.topics, version)
        classic.put(replace(classic_member, assignment=assignment))
    classic.update_topics()
    record = group_record(replace(classic, leader=None) if rebalance else classic, detail=classic)
    draft.records += (*group.tombstones(renamed), record)
    for member_id in group.members:
        draft.stop_all(member_id)
    _start(draft, classic, rebalance=rebalance)


def _start(draft: ConsumerDraft, classic: ClassicGroup, *, rebalance: bool) -> None:
    """Start the sessions, and the rebalance if one is needed.

    The rebalance starts in the same decision. Otherwise a SyncGroup before it would receive partitions that other
    members must revoke.
    """
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
