"""Timer commands of classic groups, the keys of their timers, and error responses of JoinGroup and SyncGroup."""

from typing import Final

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.runtime.shard import Timer

NO_MEMBER: Final = ""


@frozen_dataclass(frozen=True, slots=True)
class SessionTimeout:
    """Session time-out of a member, or time-out of a pending member id."""

    group_id: str
    member_id: str


@frozen_dataclass(frozen=True, slots=True)
class JoinTimeout:
    """Time-out of the join phase."""

    group_id: str


@frozen_dataclass(frozen=True, slots=True)
class InitialDelayTimeout:
    """End of the initial delay of a new group, after `delay_ms`. The delay can be extended by up to `left_ms`."""

    group_id: str
    delay_ms: int
    left_ms: int


@frozen_dataclass(frozen=True, slots=True)
class SyncTimeout:
    """Time-out of the sync phase of one generation."""

    group_id: str
    generation: int


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("classic session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("classic join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("classic sync", group_id)


def session_timer(group_id: str, member_id: str, delay_ms: int) -> Timer:
    """Return a timer that ends the member's session in `delay_ms`. It replaces the running timer."""
    return Timer(session_key(group_id, member_id), delay_ms=delay_ms, command=SessionTimeout(group_id, member_id))


def join_refused(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Return an error response with the member id of the request, as in Kafka."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
