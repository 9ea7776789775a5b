"""The commands of the timers of a classic group, their keys, and responses that refuse."""

from dataclasses import dataclass
from typing import Final

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.runtime.shard import Timer

NO_MEMBER: Final = ""


@dataclass(frozen=True, slots=True)
class SessionOver:
    """Nothing was heard of a member, or of an id that was given out, for as long as it asked for."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimeUp:
    """The join phase has lasted long enough."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayOver:
    """The first rebalance of a new group has waited for `delay_ms`; it may wait for `left_ms` more."""

    group_id: str
    delay_ms: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class SyncTimeUp:
    """The members of this generation have had time enough to send their SyncGroup."""

    group_id: str
    generation: int


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("classic session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("classic join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("classic sync", group_id)


def session_timer(group_id: str, member_id: str, delay_ms: int) -> Timer:
    """From now on the member has `delay_ms`."""
    return Timer(session_key(group_id, member_id), delay_ms=delay_ms, command=SessionOver(group_id, member_id))


def join_refused(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Kafka answers these with a member id."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
