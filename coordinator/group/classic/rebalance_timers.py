"""Decisions on the timers of a rebalance, and start of sessions and rebalances after a load."""

from odradek.coordinator.group.classic.commands import InitialDelayTimeout, JoinTimeout, SyncTimeout
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.rebalance import (
    complete_join_phase,
    prepare_rebalance,
    remove_member,
    start_initial_delay,
    start_join_timer,
)
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.state import State
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision, Loaded


def decide_join_timeout(state: State, command: JoinTimeout, now_ms: int) -> Decision[None]:
    """End the join phase. The members that have joined form the next generation."""
    group = _find(state, command.group_id)
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is None or action is not Outcome.NO_CHANGE:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    complete_join_phase(draft)
    return draft.decision(None)


def decide_initial_delay_timeout(state: State, command: InitialDelayTimeout, now_ms: int) -> Decision[None]:
    """Extend the initial delay (KIP-134) if a member has joined during it, up to the longest rebalance time-out."""
    group = _find(state, command.group_id)
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is None or action is not Outcome.NO_CHANGE:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    if group.joined_since_check and command.left_ms:
        look_up(group.state, Event.INITIAL_DELAY_EXTENDED)
        draft.group.joined_since_check = False
        delay_ms = min(draft.config.group_initial_rebalance_delay_ms, command.left_ms)
        start_initial_delay(draft, delay_ms, max(command.left_ms - command.delay_ms, 0))
    else:
        complete_join_phase(draft)
    return draft.decision(None)


def decide_sync_timeout(state: State, command: SyncTimeout, now_ms: int) -> Decision[None]:
    """Remove the members of this generation that have not sent SyncGroup, and start a rebalance."""
    group = _find(state, command.group_id)
    if group is not None and group.generation != command.generation:
        return Decision(None)
    action = look_up(_state_of(group), Event.SYNC_TIMER)
    if group is None or action != To(ClassicState.PREPARING) or not group.pending_sync:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    for member_id in group.pending_sync:
        remove_member(draft, group.members[member_id])
    prepare_rebalance(draft)
    return draft.decision(None)


def start_sessions(state: State, group: ClassicGroup, now_ms: int) -> Loaded:
    """Start the sessions of all members after a load, so that they have time to find this coordinator.

    A group in PreparingRebalance continues its rebalance. A group that exceeds `group.max.size` starts one: its
    members can commit before some of them are refused.
    """
    draft = ClassicDraft.of(state, group, now_ms)
    for member in group.members.values():
        draft.restart_session(member)
    if group.state is ClassicState.PREPARING:
        start_join_timer(draft)
    elif len(group.members) > draft.config.group_max_size:
        look_up(group.state, Event.OVERSIZED)
        prepare_rebalance(draft)
    for change in draft.soft:
        change()
    return Loaded(timers=tuple(draft.timers), effects=tuple(draft.effects))


def _find(state: State, group_id: str) -> ClassicGroup | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def _state_of(group: ClassicGroup | None) -> ClassicState:
    return ClassicState.DEAD if group is None else group.state
