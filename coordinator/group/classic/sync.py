"""SyncGroup (v0-5): the leader sends the assignment, and each member receives its part."""

from dataclasses import replace
from typing import Any

from odradek.coordinator.group.classic.commands import sync_key, sync_refused
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.records import Assigned, group_record
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.commands import WAITING, SyncGroup
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.runtime.machine import Refuse
from odradek.runtime.shard import Decision, Timer


def decide_sync(state: State, command: SyncGroup, now_ms: int) -> Decision[Any]:
    """Decide a SyncGroup request to a classic group.

    The reply is a SyncGroupResponse, or WAITING until the leader sends the assignment. Errors are raised as Refusal.
    """
    request = command.request
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_leader = group.leader == member.member_id
    action = look_up(group.state, Event.SYNC_LEADER if is_leader else Event.SYNC_FOLLOWER)
    if isinstance(action, Refuse):
        raise Refusal(action.error)
    draft = ClassicDraft.of(state, group, now_ms)
    if action is Outcome.WAIT:
        _supersede(draft, member)
        draft.group.put(replace(member, sync_waiter=command.waiter))
        _has_synced(draft, member)
        return draft.decision(WAITING)
    if action is Outcome.RESPOND:
        _has_synced(draft, member)
        return draft.decision(_assignment(group, member.assignment))
    return _assign(draft, member, command)


def _assign(draft: ClassicDraft, leader: Member, command: SyncGroup) -> Decision[Any]:
    """Write the leader's assignment. The group becomes stable when the record is applied.

    If the log refuses the record, the group does not change: the other members go on waiting, and the leader can retry.
    """
    group = draft.group
    assignments = {part.member_id: bytes(part.assignment) for part in command.request.assignments}
    draft.records.append(group_record(group, assignments, detail=Assigned(assignments, draft.now_ms)))
    for member in group.members.values():
        if member.member_id == leader.member_id:
            _supersede(draft, member)
        elif member.sync_waiter is not None:
            draft.respond(member.sync_waiter, _assignment(group, assignments.get(member.member_id, b"")))
        else:
            continue
        draft.restart_session(member)
    if group.pending_sync.keys() <= {leader.member_id}:
        draft.timers.append(Timer(sync_key(group.group_id)))
    return draft.decision(_assignment(group, assignments.get(leader.member_id, b"")))


def _has_synced(draft: ClassicDraft, member: Member) -> None:
    group = draft.group
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        draft.timers.append(Timer(sync_key(group.group_id)))


def _supersede(draft: ClassicDraft, member: Member) -> None:
    """Complete the member's earlier SyncGroup request, which its client has abandoned."""
    draft.respond(member.sync_waiter, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type or None, protocol_name=group.protocol_name, assignment=assignment
    )


def _differs(requested: str | None, current: str | None) -> bool:
    """Return True if the request names another value than the group. Older versions name none."""
    return requested is not None and bool(current) and requested != current
