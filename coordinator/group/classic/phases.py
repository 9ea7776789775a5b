"""The clocks of a rebalance, and what else begins one without a request."""

from odradek.coordinator.group.classic.commands import Consequences, InitialDelayOver, JoinTimeUp, SyncTimeUp
from odradek.coordinator.group.classic.rebalance import (
    begin,
    dismiss,
    end_join,
    restart_session,
    wait_for_members,
    wait_more,
)
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.state import State
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision


def decide_join_time_up(state: State, command: JoinTimeUp, now_ms: int) -> Decision[None]:
    """Whoever has joined makes up the next generation."""
    group, done = _find(state, command.group_id), Consequences()
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is not None and action is Outcome.STAY:
        end_join(group, now_ms, done)
    return done.decision(None)


def decide_initial_delay_over(state: State, command: InitialDelayOver, now_ms: int) -> Decision[None]:
    """As long as members come, and the longest rebalance time-out among them allows, a new group waits for more."""
    group, done = _find(state, command.group_id), Consequences()
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is None or action is not Outcome.STAY:
        return Decision(None)
    if group.grown and command.left_ms:
        look_up(group.state, Event.INITIAL_EXTENDED)
        group.grown = False
        delay_ms = min(state.configs.broker().group_initial_rebalance_delay_ms, command.left_ms)
        wait_more(group, delay_ms, max(command.left_ms - command.delay_ms, 0), done)
    else:
        end_join(group, now_ms, done)
    return done.decision(None)


def decide_sync_time_up(state: State, command: SyncTimeUp, now_ms: int) -> Decision[None]:
    """Who has joined and not asked for its assignment is gone; the others share anew."""
    group, done = _find(state, command.group_id), Consequences()
    if group is not None and group.generation != command.generation:
        return Decision(None)
    action = look_up(_state_of(group), Event.SYNC_TIMER)
    if group is not None and action == To(ClassicState.PREPARING) and group.unsynced:
        for member_id in tuple(group.unsynced):
            dismiss(group, group.members[member_id], done)
        begin(group, state.configs.broker(), now_ms, done)
    return done.decision(None)


def start_sessions(state: State, group: ClassicGroup, now_ms: int, done: Consequences) -> None:
    """After a load: members have a whole session to find the new coordinator. A group that has become too large since
    is asked to join again, so that its members can commit before some of them find no room; one that was about to
    rebalance goes on with that.
    """
    for member in group.members.values():
        restart_session(group, member, done)
    config = state.configs.broker()
    if group.state is ClassicState.PREPARING:
        wait_for_members(group, done)
    elif len(group.members) > config.group_max_size:
        look_up(group.state, Event.OVERSIZED)
        begin(group, config, now_ms, done)


def _find(state: State, group_id: str) -> ClassicGroup | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def _state_of(group: ClassicGroup | None) -> ClassicState:
    return ClassicState.DEAD if group is None else group.state
