"""The requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

What does not depend on the group is checked here; the protocol of the group decides the rest. Members of a consumer group may use
these requests, too (KIP-848, online migration).
"""

from dataclasses import replace
from typing import Any, Final

from odradek.coordinator.group.classic import join, membership, sync
from odradek.coordinator.group.classic.commands import join_refused
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.commands import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from odradek.coordinator.group.modern import classic_members
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.runtime.shard import Again, Decision

REBALANCE_TIMEOUT_MIN: Final = 1
"""The first version of JoinGroup with a rebalance time-out of its own. Before it the session time-out is used for both."""
BATCHES_MIN: Final = 3
"""The first version of LeaveGroup that names several members (KIP-345)."""


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any] | Again:
    """Reply: JoinGroupResponse, also where it refuses, or WAITING. Raise Refusal if a consumer group refuses."""
    command = _timed(command)
    request, config = command.request, state.configs.broker()
    if not request.group_id:
        return Decision(join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id))
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return Decision(join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
    group = state.groups.get(request.group_id)
    if group is not None and not isinstance(group, ClassicGroup) and not group.is_empty:
        return classic_members.decide_join(state, command, now_ms)
    return join.decide_join(state, command, now_ms)


def _timed(command: JoinGroup) -> JoinGroup:
    """Return the command with a rebalance time-out, whatever its version."""
    if command.caller.api_version >= REBALANCE_TIMEOUT_MIN:
        return command
    request = command.request
    return replace(command, request=replace(request, rebalance_timeout_ms=request.session_timeout_ms))


def decide_sync(state: State, command: SyncGroup, now_ms: int) -> Decision[Any] | Again:
    """Reply: SyncGroupResponse or WAITING. Raise Refusal."""
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    group = state.groups.get(command.request.group_id)
    if group is not None and not isinstance(group, ClassicGroup) and not group.is_empty:
        return classic_members.decide_sync(state, command, now_ms)
    return sync.decide_sync(state, command, now_ms)


def decide_heartbeat(state: State, command: Heartbeat, now_ms: int) -> Decision[Any] | Again:
    """Reply: HeartbeatResponse. Raise Refusal."""
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    group = state.groups.get(command.request.group_id)
    if group is None or isinstance(group, ClassicGroup):
        return membership.decide_heartbeat(state, command, now_ms)
    return classic_members.decide_heartbeat(state, command, now_ms)


def decide_leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any] | Again:
    """Reply: LeaveGroupResponse, with an error for each member. Raise Refusal."""
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    if command.caller.api_version >= BATCHES_MIN:
        return _leave(state, command, now_ms)
    request = LeaveGroupRequest(
        group_id=command.request.group_id, members=[MemberIdentity(member_id=command.request.member_id)]
    )
    decision = _leave(state, replace(command, request=request), now_ms)
    if isinstance(decision, Again) or not isinstance(decision.reply, LeaveGroupResponse):
        return decision
    only = decision.reply.error_code or decision.reply.members[0].error_code
    return replace(decision, reply=LeaveGroupResponse(error_code=only))


def _leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any] | Again:
    group = state.groups.get(command.request.group_id)
    if group is None or isinstance(group, ClassicGroup):
        return membership.decide_leave(state, command, now_ms)
    return classic_members.decide_leave(state, command, now_ms)


DECISIONS: Final[dict[type[Any], Any]] = {
    JoinGroup: decide_join,
    SyncGroup: decide_sync,
    Heartbeat: decide_heartbeat,
    LeaveGroup: decide_leave,
}
