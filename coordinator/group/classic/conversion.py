"""Read and release a classic group for its conversion into a consumer group (KIP-848)."""

from collections.abc import Sequence
from typing import Any

from odradek.coordinator.group.classic.commands import join_key, join_refused, session_key, sync_key, sync_refused
from odradek.coordinator.group.classic.member import Protocols
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.draft import Draft
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import Timer


@frozen_dataclass(frozen=True, slots=True)
class ClassicMemberView:
    """A member of a classic group, with its protocols in its order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes


def members_of(group: ClassicGroup) -> Sequence[ClassicMemberView]:
    """Return the members in the order in which they joined."""
    return [
        ClassicMemberView(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.protocols,
            member.assignment,
        )
        for member in group.members.values()
    ]


def release_waiters(draft: Draft[Any], group: ClassicGroup) -> None:
    """Make members with waiting requests join again, and stop the timers of the group. The group does not change."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        draft.respond(member.join_waiter, join_refused(error, member.member_id))
        draft.respond(member.sync_waiter, sync_refused(error))
    draft.timers += [Timer(join_key(group.group_id)), Timer(sync_key(group.group_id))]
    draft.timers += [
        Timer(session_key(group.group_id, member_id)) for member_id in (*group.members, *group.pending_ids)
    ]
