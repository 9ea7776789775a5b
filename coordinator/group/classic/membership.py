"""Being a member: Heartbeat (v0-4), LeaveGroup (v0-5, KIP-345 batches), and sessions that end."""

from typing import Any

from odradek.coordinator.group.classic.commands import SessionOver
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.rebalance import begin, dismiss, end_join_if_complete, follow
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
    """Reply: HeartbeatResponse. Raises Refusal; a member that must join again is heard of all the same."""
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
    """Reply: LeaveGroupResponse, with an error for each member."""
    request = command.request
    group = state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return Decision(LeaveGroupResponse(members=[_left(identity, unknown) for identity in request.members]))
    draft = ClassicDraft.of(state, group, now_ms)
    responses = [_left(identity, _leave_one(draft, identity)) for identity in request.members]
    if any(response.error_code == ErrorCode.NONE for response in responses):
        follow(look_up(group.state, Event.LEAVE), draft)
    return draft.decision(LeaveGroupResponse(members=responses))


def _leave_one(draft: ClassicDraft, identity: MemberIdentity) -> ErrorCode:
    """An administrator removes static members without knowing their ids."""
    group, member_id = draft.group, identity.member_id
    if member_id in group.pending:
        group.remove(member_id)
        draft.stop_session(member_id)
        return ErrorCode.NONE
    if not member_id and identity.group_instance_id is not None:
        member_id = group.instances.get(identity.group_instance_id, "")
    try:
        member = group.check_member(member_id, identity.group_instance_id)
    except Refusal as refusal:
        return refusal.error
    dismiss(draft, member)
    return ErrorCode.NONE


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(identity.member_id, identity.group_instance_id, error)


def decide_session_over(state: State, command: SessionOver, now_ms: int) -> Decision[None]:
    """Remove a member that sent nothing for a session. One that waits for the coordinator is not to blame: its next session
    starts when it is answered.
    """
    group = state.groups.get(command.group_id)
    if not isinstance(group, ClassicGroup):
        look_up(ClassicState.DEAD, Event.SESSION_OVER)
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    if command.member_id in group.pending:
        look_up(group.state, Event.PENDING_OVER)
        draft.group.remove(command.member_id)
        end_join_if_complete(draft)
    elif group.is_empty:
        look_up(group.state, Event.SESSION_OVER)
    else:
        member = group.members.get(command.member_id)
        if member is None or member.awaits_response:
            return Decision(None)
        action = look_up(group.state, Event.SESSION_OVER)
        dismiss(draft, member)
        if action == To(ClassicState.PREPARING):
            begin(draft)
        else:
            assert action is Outcome.NO_CHANGE, action
            end_join_if_complete(draft)
    return draft.decision(None)
