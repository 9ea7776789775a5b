"""Members of the classic protocol in a consumer group (KIP-848, upgrade). Refused until their decisions are written."""

from typing import Any

from coordinator.group.commands import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from coordinator.group.state import State
from protocol.errors import ErrorCode, Refusal
from protocol.messages.join_group import JoinGroupResponse
from runtime.shard import Again, Decision


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any] | Again:
    return Decision(
        JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=command.request.member_id)
    )


def decide_sync(state: State, command: SyncGroup, now_ms: int) -> Decision[Any] | Again:
    raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)


def decide_heartbeat(state: State, command: Heartbeat, now_ms: int) -> Decision[Any] | Again:
    raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)


def decide_leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any] | Again:
    raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
