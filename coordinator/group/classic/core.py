"""Groups of the classic protocol: decisions on their timers, and application of their records.

Requests of the classic protocol come from `coordinator.group.classic_requests`.

Only `apply_group` changes what the log contains: that a group exists, the assignment of its leader, and the new id of a
static member. A rebalance is in memory only, and soft changes of decisions drive it.
"""

from typing import Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic import commands as timer_commands
from odradek.coordinator.group.classic.describe import decide_describe
from odradek.coordinator.group.classic.membership import decide_session_timeout
from odradek.coordinator.group.classic.rebalance_timers import (
    decide_initial_delay_timeout,
    decide_join_timeout,
    decide_sync_timeout,
    start_sessions,
)
from odradek.coordinator.group.classic.records import Assigned, Emptied, restored_group
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.records import Entry
from odradek.coordinator.group.state import State
from odradek.protocol.records.group_metadata import GroupMetadataKey
from odradek.runtime.shard import Loaded

DECISIONS: Final[dict[type[Any], Any]] = {
    c.DescribeClassic: decide_describe,
    timer_commands.SessionTimeout: decide_session_timeout,
    timer_commands.JoinTimeout: decide_join_timeout,
    timer_commands.InitialDelayTimeout: decide_initial_delay_timeout,
    timer_commands.SyncTimeout: decide_sync_timeout,
}


def apply_group(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    """Apply a GroupMetadata record. A tombstone does not delete a consumer group that has replaced the classic one."""
    group_id, detail = entry.key.group, entry.detail
    group = state.groups.get(group_id)
    if entry.value is None:
        if isinstance(group, ClassicGroup):
            del state.groups[group_id]
    elif isinstance(detail, ClassicGroup):
        state.groups[group_id] = detail
    elif isinstance(detail, Assigned):
        assert isinstance(group, ClassicGroup), group_id
        group.assign(detail.assignments, detail.now_ms)
    elif not isinstance(detail, Emptied):
        state.groups[group_id] = restored_group(group_id, entry.value)


APPLICATIONS: Final[dict[type[Any], Any]] = {GroupMetadataKey: apply_group}


def on_loaded(state: State, now_ms: int) -> Loaded:
    """Start the sessions of the members that the log contains. Each has one session time-out to send a heartbeat."""
    loaded = [
        start_sessions(state, group, now_ms) for group in state.groups.values() if isinstance(group, ClassicGroup)
    ]
    return Loaded(
        timers=tuple(timer for part in loaded for timer in part.timers),
        effects=tuple(effect for part in loaded for effect in part.effects),
    )
