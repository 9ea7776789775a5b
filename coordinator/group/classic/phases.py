"""The timers of a rebalance, and what else begins one without a request."""

from odradek.coordinator.group.classic.commands import InitialDelayOver, JoinTimeUp, SyncTimeUp
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.rebalance import begin, dismiss, end_join, wait_for_members, wait_more
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.state import State
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision, Loaded


def decide_join_time_up(state: State, command: JoinTimeUp, now_ms: int) -> Decision[None]:
    """End the join phase: the members that have joined make up the next generation."""
    group = _find(state, command.group_id)
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is None or action is not Outcome.NO_CHANGE:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    end_join(draft)
    return draft.decision(None)


def decide_initial_delay_over(state: State, command: InitialDelayOver, now_ms: int) -> Decision[None]:
    """As long as members come, and the longest rebalance time-out among them allows, a new group waits for more."""
    group = _find(state, command.group_id)
    action = look_up(_state_of(group), Event.JOIN_TIMER)
    if group is None or action is not Outcome.NO_CHANGE:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    if group.joined_since_check and command.left_ms:
        look_up(group.state, Event.INITIAL_EXTENDED)
        draft.group.joined_since_check = False
        delay_ms = min(draft.config.group_initial_rebalance_delay_ms, command.left_ms)
        wait_more(draft, delay_ms, max(command.left_ms - command.delay_ms, 0))
    else:
        end_join(draft)
    return draft.decision(None)


def decide_sync_time_up(state: State, command: SyncTimeUp, now_ms: int) -> Decision[None]:
    """Remove the members that have joined and not asked for their assignment; the others rebalance."""
    group = _find(state, command.group_id)
    if group is not None and group.generation != command.generation:
        return Decision(None)
    action = look_up(_state_of(group), Event.SYNC_TIMER)
    if group is None or action != To(ClassicState.PREPARING) or not group.unsynced:
        return Decision(None)
    draft = ClassicDraft.of(state, group, now_ms)
    for member_id in group.unsynced:
        dismiss(draft, group.members[member_id])
    begin(draft)
    return draft.decision(None)


def start_sessions(state: State, group: ClassicGroup, now_ms: int) -> Loaded:
    """After a load: members have a whole session to find the new coordinator. A group that has become too large since
    is asked to join again, so that its members can commit before some of them find no room; one that was about to
    rebalance goes on with that.
    """
    draft = ClassicDraft.of(state, group, now_ms)
    for member in group.members.values():
        draft.restart_session(member)
    if group.state is ClassicState.PREPARING:
        wait_for_members(draft)
    elif len(group.members) > draft.config.group_max_size:
        look_up(group.state, Event.OVERSIZED)
        begin(draft)
    for change in draft.soft:
        change()
    return Loaded(timers=tuple(draft.timers), effects=tuple(draft.effects))


def _find(state: State, group_id: str) -> ClassicGroup | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def _state_of(group: ClassicGroup | None) -> ClassicState:
    return ClassicState.DEAD if group is None else group.state
