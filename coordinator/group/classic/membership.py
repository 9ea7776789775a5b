"""Heartbeat (v0-4), LeaveGroup (v0-5, KIP-345) and session time-outs of classic groups."""

from typing import Any

from odradek.coordinator.group.classic.commands import SessionTimeout
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.rebalance import (
    continue_rebalance,
    maybe_complete_join_phase,
    prepare_rebalance,
    remove_member,
)
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.commands import Heartbeat, LeaveGroup
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from odradek.runtime.machine import Refuse, To
from odradek.runtime.shard import Decision


def decide_heartbeat(state: State, command: Heartbeat, now_ms: int) -> Decision[Any]:
    """Decide a Heartbeat request of a classic member. The reply is a HeartbeatResponse.

    REBALANCE_IN_PROGRESS is a reply, because it extends the session of the member. Other errors are raised as Refusal.
    """
    request = command.request
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    action = look_up(group.state, Event.HEARTBEAT)
    draft = ClassicDraft(state, group, now_ms)
    draft.restart_session(member)
    return draft.decision(Refusal(action.error) if isinstance(action, Refuse) else HeartbeatResponse())


def decide_leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any]:
    """Decide a LeaveGroup request to a classic group. The LeaveGroupResponse has an error code for each member."""
    request = command.request
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return Decision(LeaveGroupResponse(members=[_left(identity, unknown) for identity in request.members]))
    draft = ClassicDraft.of(state, group, now_ms)
    responses = [_left(identity, _leave_one(draft, identity)) for identity in request.members]
    if any(response.error_code == ErrorCode.NONE for response in responses):
        continue_rebalance(look_up(group.state, Event.LEAVE), draft)
    return draft.decision(LeaveGroupResponse(members=responses))


def _leave_one(draft: ClassicDraft, identity: MemberIdentity) -> ErrorCode:
    """Remove one member. An administrator removes static members by their instance id alone."""
    group, member_id = draft.group, identity.member_id
    if member_id in group.pending_ids:
        group.remove(member_id)
        draft.stop_session(member_id)
        return ErrorCode.NONE
    if not member_id and identity.group_instance_id is not None:
        member_id = group.instances.get(identity.group_instance_id, "")
    try:
        member = group.check_member(member_id, identity.group_instance_id)
    except Refusal as refusal:
        return refusal.error
    remove_member(draft, member)
    return ErrorCode.NONE


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(identity.member_id, identity.group_instance_id, error)


def decide_session_timeout(state: State, command: SessionTimeout, now_ms: int) -> Decision[None]:
    """Remove a member or a pending member id after its time-out.

    A member with a waiting request stays: its next session starts with the response.
    """
    group = state.groups.get(command.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.SESSION_TIMEOUT)
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    if command.member_id in group.pending_ids:
        look_up(group.state, Event.PENDING_TIMEOUT)
        draft.group.remove(command.member_id)
        maybe_complete_join_phase(draft)
    elif group.is_empty:
        look_up(group.state, Event.SESSION_TIMEOUT)
    else:
        member = group.members.get(command.member_id)
        if member is None or member.awaits_response:
            return Decision(None)
        action = look_up(group.state, Event.SESSION_TIMEOUT)
        remove_member(draft, member)
        if action == To(ClassicState.PREPARING):
            prepare_rebalance(draft)
        else:
            assert action is Outcome.NO_CHANGE, action
            maybe_complete_join_phase(draft)
    return draft.decision(None)
