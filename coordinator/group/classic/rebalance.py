"""The two phases of a rebalance: members join until all have or the time is up, then the leader assigns.

The functions here change what is soft in a group and say in `Consequences` what follows; none of them refuses.
"""

from odradek.coordinator.group.classic.commands import (
    Consequences,
    InitialDelayOver,
    JoinTimeUp,
    SyncTimeUp,
    join_key,
    join_refused,
    session_key,
    session_timer,
    sync_key,
    sync_refused,
)
from odradek.coordinator.group.classic.records import Emptied, group_record
from odradek.coordinator.group.classic.state import ClassicGroup, Member
from odradek.coordinator.group.classic.transitions import Action, ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.ports import GroupConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.runtime.machine import To
from odradek.runtime.shard import Timer

NO_GENERATION = -1


def follow(action: Action, group: ClassicGroup, config: GroupConfig, now_ms: int, done: Consequences) -> None:
    """After members came or changed: begin a rebalance, or end its join phase when they were the last."""
    if action == To(ClassicState.PREPARING):
        begin(group, config, now_ms, done)
    elif action in {Outcome.WAIT, Outcome.STAY} and group.previous is not ClassicState.EMPTY:
        end_join_if_complete(group, now_ms, done)


def begin(group: ClassicGroup, config: GroupConfig, now_ms: int, done: Consequences) -> None:
    """All members are asked to join again. The first rebalance of an empty group waits for more members (KIP-134)."""
    if group.state is ClassicState.COMPLETING:
        for member in group.members.values():
            member.assignment = b""
            if member.syncing is not None:
                done.answer(member.syncing, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
                member.syncing = None
                restart_session(group, member, done)
    group.unsynced.clear()
    done.timers.append(Timer(sync_key(group.group_id)))
    initial = group.is_empty
    group.enter(ClassicState.PREPARING, now_ms)
    if initial:
        delay_ms = config.group_initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        wait_more(group, delay_ms, left_ms, done)
    elif group.all_joined:
        end_join(group, now_ms, done)
    else:
        wait_for_members(group, done)


def wait_more(group: ClassicGroup, delay_ms: int, left_ms: int, done: Consequences) -> None:
    """The initial delay."""
    command = InitialDelayOver(group.group_id, delay_ms, left_ms)
    done.timers.append(Timer(join_key(group.group_id), delay_ms=delay_ms, command=command))


def wait_for_members(group: ClassicGroup, done: Consequences) -> None:
    """The join phase of a group that has members."""
    key, delay_ms = join_key(group.group_id), group.rebalance_timeout_ms
    done.timers.append(Timer(key, delay_ms=delay_ms, command=JoinTimeUp(group.group_id)))


def end_join_if_complete(group: ClassicGroup, now_ms: int, done: Consequences) -> None:
    if group.state is ClassicState.PREPARING and group.all_joined:
        end_join(group, now_ms, done)


def end_join(group: ClassicGroup, now_ms: int, done: Consequences) -> None:
    """Who has not joined is no member any more, but for static ones, which keep their place until their session ends."""
    done.timers.append(Timer(join_key(group.group_id)))
    away = [m for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member in away:
        group.remove(member.member_id)
        done.timers.append(Timer(session_key(group.group_id, member.member_id)))
    if group.members and not group.elect():
        look_up(group.state, Event.NOBODY_JOINED)
        wait_for_members(group, done)
        return
    action = look_up(group.state, Event.ALL_JOINED if group.members else Event.NOBODY_LEFT)
    group.next_generation(now_ms)
    assert action == To(group.state), action
    if group.is_empty:
        # A log that refuses this record changes nothing for anybody: there is nobody in this generation. A successor
        # finds the one before, and waits for its members in vain until their sessions are over.
        done.records.append(group_record(group, detail=Emptied()))
        return
    for member in group.members.values():
        done.answer(member.joining, generation_for(group, member))
        group.await_join(member, None)
        restart_session(group, member, done)
        member.is_new = False
        group.unsynced[member.member_id] = None
    delay_ms = group.rebalance_timeout_ms
    command = SyncTimeUp(group.group_id, group.generation)
    done.timers.append(Timer(sync_key(group.group_id), delay_ms=delay_ms, command=command))


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


def restart_session(group: ClassicGroup, member: Member, done: Consequences) -> None:
    done.timers.append(session_timer(group.group_id, member.member_id, member.session_timeout_ms))


def dismiss(group: ClassicGroup, member: Member, done: Consequences) -> None:
    """The member is gone; if it is still there after all and waits, it learns that and joins anew."""
    done.answer(member.joining, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    done.answer(member.syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    done.timers.append(Timer(session_key(group.group_id, member.member_id)))
