"""The two phases of a rebalance: members join until all have or the time is up, then the leader assigns.

The functions here change what is soft in the group of a draft and add to the draft what follows; none of them refuses.
"""

from dataclasses import replace

from odradek.coordinator.group.classic.commands import (
    InitialDelayOver,
    JoinTimeUp,
    SyncTimeUp,
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


def follow(action: Action, draft: ClassicDraft) -> None:
    """After members came or changed: begin a rebalance, or end its join phase when they were the last."""
    if action == To(ClassicState.PREPARING):
        begin(draft)
    elif action in {Outcome.WAIT, Outcome.NO_CHANGE} and draft.group.previous is not ClassicState.EMPTY:
        end_join_if_complete(draft)


def begin(draft: ClassicDraft) -> None:
    """All members are asked to join again. The first rebalance of an empty group waits for more members (KIP-134)."""
    group = draft.group
    if group.state is ClassicState.COMPLETING:
        for member in tuple(group.members.values()):
            if member.syncing is not None:
                draft.respond(member.syncing, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
                draft.restart_session(member)
            group.put(replace(member, assignment=b"", syncing=None))
    group.unsynced.clear()
    draft.timers.append(Timer(sync_key(group.group_id)))
    initial = group.is_empty
    group.enter(ClassicState.PREPARING, draft.now_ms)
    if initial:
        delay_ms = draft.config.group_initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        wait_more(draft, delay_ms, left_ms)
    elif group.all_joined:
        end_join(draft)
    else:
        wait_for_members(draft)


def wait_more(draft: ClassicDraft, delay_ms: int, left_ms: int) -> None:
    """The initial delay."""
    group_id = draft.group.group_id
    command = InitialDelayOver(group_id, delay_ms, left_ms)
    draft.timers.append(Timer(join_key(group_id), delay_ms=delay_ms, command=command))


def wait_for_members(draft: ClassicDraft) -> None:
    """The join phase of a group that has members."""
    group_id, delay_ms = draft.group.group_id, draft.group.rebalance_timeout_ms
    draft.timers.append(Timer(join_key(group_id), delay_ms=delay_ms, command=JoinTimeUp(group_id)))


def end_join_if_complete(draft: ClassicDraft) -> None:
    if draft.group.state is ClassicState.PREPARING and draft.group.all_joined:
        end_join(draft)


def end_join(draft: ClassicDraft) -> None:
    """Who has not joined is no member any more, but for static ones, which keep their place until their session ends."""
    group = draft.group
    draft.timers.append(Timer(join_key(group.group_id)))
    away = [m for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member in away:
        group.remove(member.member_id)
        draft.stop_session(member.member_id)
    if group.members and not group.elect():
        look_up(group.state, Event.NO_MEMBER_JOINED)
        wait_for_members(draft)
        return
    action = look_up(group.state, Event.ALL_JOINED if group.members else Event.NO_MEMBER_LEFT)
    group.next_generation(draft.now_ms)
    assert action == To(group.state), action
    if group.is_empty:
        # As in Kafka, the group is empty here even if the log refuses the record: no member of this generation can be misled.
        # A successor finds the generation before, whose members are removed when their sessions end.
        draft.records.append(group_record(group, detail=Emptied()))
        draft.soft_survives = True
        return
    for member in tuple(group.members.values()):
        draft.respond(member.joining, generation_for(group, member))
        draft.restart_session(member)
        group.end_join(member)
        group.unsynced[member.member_id] = None
    delay_ms = group.rebalance_timeout_ms
    command = SyncTimeUp(group.group_id, group.generation)
    draft.timers.append(Timer(sync_key(group.group_id), delay_ms=delay_ms, command=command))


def generation_for(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """What a member is told of its generation; the leader is told who the others are."""
    leads = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=group.as_members() if leads else [],
    )


def dismiss(draft: ClassicDraft, member: Member) -> None:
    """The member is gone; if it is still there after all and waits, it learns that and joins anew."""
    draft.respond(member.joining, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.respond(member.syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.group.remove(member.member_id)
    draft.stop_session(member.member_id)
