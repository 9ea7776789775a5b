"""Removal of members from a consumer group: they leave, or a time-out removes them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.conversion.downgrade import convert_to_classic, may_downgrade
from odradek.coordinator.group.modern.draft import (
    ConsumerDraft,
    JoinExpired,
    RebalanceExpired,
    SessionExpired,
    SyncExpired,
)
from odradek.coordinator.group.modern.member import NO_PARTITIONS, STATIC_LEAVE_EPOCH, Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.changes import drop_unused_regexes
from odradek.coordinator.group.modern.subscriptions.metadata_hash import group_hash
from odradek.coordinator.group.modern.transitions import Action, Event, look_up
from odradek.coordinator.group.state import State
from odradek.runtime.shard import Decision


def remove_members(draft: ConsumerDraft, members: Sequence[Member], response: Any) -> Decision[Any]:
    """Remove the members. The group gets a new epoch, or becomes a classic group if only classic members stay."""
    if not members:
        return draft.decision(response)
    for member in members:
        look_up(member.state, Event.LEAVE)
    leaving = {member.member_id: member for member in members}
    if may_downgrade(draft, leaving):
        convert_to_classic(draft, leaving, rebalance=True)
        return draft.decision(response)
    group = draft.group
    for member_id in leaving:
        draft.records += (
            r.current_assignment_tombstone(group.group_id, member_id),
            r.target_assignment_tombstone(group.group_id, member_id),
            r.member_tombstone(group.group_id, member_id),
        )
        draft.stop_all(member_id)
    metadata_hash = _hash_without(draft, leaving)
    draft.records.append(r.group_record(group.group_id, group.epoch + 1, metadata_hash))
    if len(leaving) == len(group.members):
        # The target assignment of an empty group is complete. Time 0: the next member does not wait for the interval.
        draft.records.append(r.target_metadata_record(group.group_id, group.epoch + 1, 0))
    draft.set_hash_checked(draft.state.topics.version(), group.epoch + 1)
    return draft.decision(response)


def _hash_without(draft: ConsumerDraft, leaving: Mapping[str, Member]) -> int:
    group = draft.group
    counts = group.subscriptions.copy()
    for member in leaving.values():
        counts.count(member, -1)
    drop_unused_regexes(counts, draft)
    for regex in group.subscriptions.regexes:
        if regex not in counts.regexes:
            draft.records.append(r.regex_tombstone(group.group_id, regex))
    return group_hash(counts.topics(), draft.state.topics, draft.state.topic_hashes)


def leave_temporarily(draft: ConsumerDraft, member: Member, response: Any) -> Decision[Any]:
    """Let a static member leave temporarily. It keeps its partitions until its session expires."""
    look_up(member.state, Event.STATIC_LEAVE)
    departed = replace(
        member,
        epoch=STATIC_LEAVE_EPOCH,
        assigned={topic_id: dict.fromkeys(held, 0) for topic_id, held in member.assigned.items()},
        revoking=NO_PARTITIONS,
    )
    draft.records.append(r.current_assignment_record(draft.group.group_id, departed))
    return draft.decision(response)


def decide_expired(state: State, command: SessionExpired | JoinExpired | SyncExpired, now_ms: int) -> Decision[Any]:
    """Remove a member after a time-out. Do nothing if the member or the group no longer exists."""
    group_and_member = _find(state, command.group_id, command.member_id)
    if group_and_member is None:
        return Decision(None)
    group, member = group_and_member
    return remove_members(ConsumerDraft(state, group, now_ms), [member], None)


def decide_rebalance_expired(state: State, command: RebalanceExpired, now_ms: int) -> Decision[Any]:
    """Remove a member after its rebalance time-out. Do nothing if it has revoked its partitions in the meantime."""
    group_and_member = _find(state, command.group_id, command.member_id)
    if group_and_member is None:
        return Decision(None)
    group, member = group_and_member
    if member.epoch != command.epoch or look_up(member.state, Event.REBALANCE_TIMEOUT) is Action.IGNORE:
        return Decision(None)
    return remove_members(ConsumerDraft(state, group, now_ms), [member], None)


def _find(state: State, group_id: str, member_id: str) -> tuple[ConsumerGroup, Member] | None:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or member_id not in group.members:
        return None
    return group, group.members[member_id]
