"""The requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Checks that do not depend on the group are made here. The group's protocol decides the rest: members of a consumer
group can also send these requests (KIP-848, online migration).
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
from odradek.protocol.schema import replace_fields
from odradek.runtime.shard import Decision, RetryAfter

REBALANCE_TIMEOUT_MIN: Final = 1
"""First version of JoinGroup with a rebalance time-out. Earlier versions use the session time-out for both."""
PROTOCOLS_MAX: Final = 100
"""Maximum protocols of a member. Each rebalance compares the protocols of all members. Kafka has no limit."""
INSTANCE_ID_CHARACTERS_MAX: Final = 2_000
"""Maximum characters of a group instance id. The member id contains it, and a string has at most 32,767 bytes."""
BATCHES_MIN: Final = 3
"""First version of LeaveGroup that names several members (KIP-345)."""


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any] | RetryAfter:
    """Decide a JoinGroup request to a group of either protocol.

    The reply is a JoinGroupResponse, also for most errors, or WAITING. Raise Refusal if a consumer group refuses the
    member.
    """
    command = _with_rebalance_timeout(command)
    request, config = command.request, state.configs.broker()
    if not request.group_id:
        return Decision(join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id))
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return Decision(join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
    if len(request.protocols) > PROTOCOLS_MAX:
        return Decision(join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    if len(request.group_instance_id or "") > INSTANCE_ID_CHARACTERS_MAX:
        return Decision(join_refused(ErrorCode.INVALID_REQUEST, request.member_id))
    group = state.groups.get(request.group_id)
    if group is not None and not isinstance(group, ClassicGroup) and not group.is_empty:
        return classic_members.decide_join(state, command, now_ms)
    return join.decide_join(state, command, now_ms)


def _with_rebalance_timeout(command: JoinGroup) -> JoinGroup:
    """Return the command with a rebalance time-out. Versions without one use the session time-out."""
    if command.caller.api_version >= REBALANCE_TIMEOUT_MIN:
        return command
    request = command.request
    return replace(command, request=replace_fields(request, rebalance_timeout_ms=request.session_timeout_ms))


def decide_sync(state: State, command: SyncGroup, now_ms: int) -> Decision[Any] | RetryAfter:
    """Decide a SyncGroup request to a group of either protocol. The reply is a SyncGroupResponse or WAITING."""
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    group = state.groups.get(command.request.group_id)
    if group is not None and not isinstance(group, ClassicGroup) and not group.is_empty:
        return classic_members.decide_sync(state, command, now_ms)
    return sync.decide_sync(state, command, now_ms)


def decide_heartbeat(state: State, command: Heartbeat, now_ms: int) -> Decision[Any] | RetryAfter:
    """Decide a Heartbeat request to a group of either protocol. The reply is a HeartbeatResponse."""
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    group = state.groups.get(command.request.group_id)
    if group is None or isinstance(group, ClassicGroup):
        return membership.decide_heartbeat(state, command, now_ms)
    return classic_members.decide_heartbeat(state, command, now_ms)


def decide_leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any] | RetryAfter:
    """Decide a LeaveGroup request to a group of either protocol.

    The reply is a LeaveGroupResponse with an error code for each member.
    """
    if not command.request.group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    if command.caller.api_version >= BATCHES_MIN:
        return _leave(state, command, now_ms)
    request = LeaveGroupRequest(
        group_id=command.request.group_id, members=[MemberIdentity(member_id=command.request.member_id)]
    )
    decision = _leave(state, replace(command, request=request), now_ms)
    if isinstance(decision, RetryAfter) or not isinstance(decision.reply, LeaveGroupResponse):
        return decision
    error = decision.reply.error_code or decision.reply.members[0].error_code
    return replace(decision, reply=LeaveGroupResponse(error_code=error))


def _leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any] | RetryAfter:
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
