"""Groups of the consumer protocol (KIP-848): table of decisions, and start of timers after a load."""

from typing import Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.apply import APPLICATIONS
from odradek.coordinator.group.modern.describe import decide_describe
from odradek.coordinator.group.modern.draft import (
    ConsumerDraft,
    JoinExpired,
    RebalanceExpired,
    ResolveRegexes,
    SessionExpired,
    SyncExpired,
)
from odradek.coordinator.group.modern.heartbeat import decide_heartbeat
from odradek.coordinator.group.modern.leaving import decide_expired, decide_rebalance_expired
from odradek.coordinator.group.modern.member import MemberState
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.regexes import decide_resolve
from odradek.coordinator.group.state import State
from odradek.runtime.shard import Loaded

__all__ = ["APPLICATIONS", "DECISIONS", "on_loaded"]


DECISIONS: Final[dict[type[Any], Any]] = {
    c.ConsumerGroupHeartbeat: decide_heartbeat,
    c.DescribeConsumer: decide_describe,
    SessionExpired: decide_expired,
    JoinExpired: decide_expired,
    SyncExpired: decide_expired,
    RebalanceExpired: decide_rebalance_expired,
    ResolveRegexes: decide_resolve,
}


def on_loaded(state: State, now_ms: int) -> Loaded:
    """Start a full session for each member, and a full rebalance time-out for members that must revoke partitions."""
    timers = []
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        draft = ConsumerDraft(state, group, now_ms)
        session_ms = state.configs.session_timeout_ms(group.group_id)
        for member in group.members.values():
            draft.start_session(member.member_id, session_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                draft.start_rebalance(member)
        timers += draft.timers
    return Loaded(timers=tuple(timers))
