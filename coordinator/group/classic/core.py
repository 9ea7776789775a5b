"""Groups of the classic protocol: the decisions on their timers and the applications of their records.

Requests of the classic protocol come from `coordinator.group.classic_requests`.

What the log says is changed by `apply_group` alone: that a group exists, that its leader has assigned, that a static
member has a new id. A rebalance is in memory only: soft changes of the decisions drive it.
"""

from typing import Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic import commands as own
from odradek.coordinator.group.classic.describe import decide_describe
from odradek.coordinator.group.classic.membership import decide_session_over
from odradek.coordinator.group.classic.phases import (
    decide_initial_delay_over,
    decide_join_time_up,
    decide_sync_time_up,
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
    own.SessionOver: decide_session_over,
    own.JoinTimeUp: decide_join_time_up,
    own.InitialDelayOver: decide_initial_delay_over,
    own.SyncTimeUp: decide_sync_time_up,
}


def apply_group(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    """A tombstone leaves a consumer group of the same name alone: that one has taken the place of the classic group."""
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
    """Members found in the log have a session's time to be heard of."""
    loaded = [
        start_sessions(state, group, now_ms) for group in state.groups.values() if isinstance(group, ClassicGroup)
    ]
    return Loaded(
        timers=tuple(timer for each in loaded for timer in each.timers),
        effects=tuple(effect for each in loaded for effect in each.effects),
    )
