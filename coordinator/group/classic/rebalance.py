"""The two phases of a rebalance: members join until all have joined or the time-out, then the leader assigns.

These functions change soft state in the group of a draft, and add timers and responses to the draft. None of them
raises Refusal.
"""

from dataclasses import replace

from odradek.coordinator.group.classic.commands import (
    InitialDelayTimeout,
    JoinTimeout,
    SyncTimeout,
    join_key,
    join_refused,
    sync_key,
    sync_refused,
)
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.records import Emptied, group_record
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import Action, ClassicState, Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.runtime.machine import To
from odradek.runtime.shard import Timer

RESTART_MS_MIN = 1_000
"""Minimum milliseconds of a join phase that is repeated because no member has joined. Members may have a rebalance
time-out of 0."""


def continue_rebalance(action: Action, draft: ClassicDraft) -> None:
    """Carry out an action after members were added or changed: start a rebalance, or end its join phase if complete."""
    if action == To(ClassicState.PREPARING):
        prepare_rebalance(draft)
    elif action in {Outcome.WAIT, Outcome.NO_CHANGE} and draft.group.previous_state is not ClassicState.EMPTY:
        maybe_complete_join_phase(draft)


def prepare_rebalance(draft: ClassicDraft) -> None:
    """Start a rebalance: all members must join again. The first one waits for more members (KIP-134)."""
    group = draft.group
    if group.state is ClassicState.COMPLETING:
        for member in tuple(group.members.values()):
            if member.sync_waiter is not None:
                draft.respond(member.sync_waiter, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
                draft.restart_session(member)
            group.put(replace(member, assignment=b"", sync_waiter=None))
    group.pending_sync.clear()
    draft.timers.append(Timer(sync_key(group.group_id)))
    initial = group.is_empty
    group.enter(ClassicState.PREPARING, draft.now_ms)
    if initial:
        delay_ms = draft.config.group_initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        start_initial_delay(draft, delay_ms, left_ms)
    elif group.all_joined:
        complete_join_phase(draft)
    else:
        start_join_timer(draft)


def start_initial_delay(draft: ClassicDraft, delay_ms: int, left_ms: int) -> None:
    """Start the timer of the initial rebalance delay."""
    group_id = draft.group.group_id
    command = InitialDelayTimeout(group_id, delay_ms, left_ms)
    draft.timers.append(Timer(join_key(group_id), delay_ms=delay_ms, command=command))


def start_join_timer(draft: ClassicDraft, min_ms: int = 0) -> None:
    """Start the timer of the join phase of a group with members: their rebalance time-out, but at least `min_ms`."""
    group_id, delay_ms = draft.group.group_id, max(draft.group.rebalance_timeout_ms, min_ms)
    draft.timers.append(Timer(join_key(group_id), delay_ms=delay_ms, command=JoinTimeout(group_id)))


def maybe_complete_join_phase(draft: ClassicDraft) -> None:
    if draft.group.state is ClassicState.PREPARING and draft.group.all_joined:
        complete_join_phase(draft)


def complete_join_phase(draft: ClassicDraft) -> None:
    """End the join phase. Remove members that have not joined, except static ones, whose sessions continue."""
    group = draft.group
    draft.timers.append(Timer(join_key(group.group_id)))
    absent = [member for member in group.members.values() if member.join_waiter is None and member.instance_id is None]
    for member in absent:
        group.remove(member.member_id)
        draft.stop_session(member.member_id)
    if group.members and not group.elect_leader():
        look_up(group.state, Event.NO_MEMBER_JOINED)
        start_join_timer(draft, RESTART_MS_MIN)
        return
    action = look_up(group.state, Event.ALL_JOINED if group.members else Event.NO_MEMBERS)
    group.next_generation(draft.now_ms)
    assert action == To(group.state), action
    if group.is_empty:
        # As in Kafka, the group is empty even if the log refuses the record. A new coordinator then restores the
        # previous generation, and removes its members after their session time-out.
        draft.records.append(group_record(group, detail=Emptied()))
        draft.soft_survives = True
        return
    for member in tuple(group.members.values()):
        draft.respond(member.join_waiter, join_response(group, member))
        draft.restart_session(member)
        group.end_join(member)
        group.pending_sync[member.member_id] = None
    delay_ms = group.rebalance_timeout_ms
    command = SyncTimeout(group.group_id, group.generation)
    draft.timers.append(Timer(sync_key(group.group_id), delay_ms=delay_ms, command=command))


def join_response(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """Return the JoinGroup response of a member. Only the leader receives the list of members."""
    is_leader = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=group.join_response_members() if is_leader else [],
    )


def remove_member(draft: ClassicDraft, member: Member) -> None:
    """Remove a member. Its waiting requests receive UNKNOWN_MEMBER_ID, so that it joins as a new member."""
    draft.respond(member.join_waiter, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.respond(member.sync_waiter, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.group.remove(member.member_id)
    draft.stop_session(member.member_id)
