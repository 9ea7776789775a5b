"""One heartbeat brings one member one step nearer to its target assignment (KIP-848, Reconciliation of the group)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.coordinator.group.modern.member import NO_EPOCH, NO_PARTITIONS, Member, MemberState, Partitions
from odradek.coordinator.group.modern.state import Assignment
from odradek.coordinator.group.modern.transitions import Action, Event, check_next, look_up
from odradek.protocol.errors import ErrorCode, Refusal

Owned = Sequence[tuple[bytes, Sequence[int]]] | None
"""(topic id, partitions) that the member says it has; None when it does not say."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the group knows when the heartbeat comes. `resubscribed`: the member has just changed its subscription."""

    target_epoch: int
    target: Assignment
    owned: Owned
    resubscribed: bool
    is_subscribed: Callable[[bytes], bool]
    """Is a topic of this id among what the member subscribes to?"""
    partition_epoch: Callable[[bytes, int], int]


def reconcile(member: Member, now: Situation) -> Member:
    """The next value of the member, or the same one. Raises Refusal(FENCED_MEMBER_EPOCH)."""
    event = event_of(member, now)
    action = look_up(member.state, event)
    if action is Action.KEEP:
        return member
    if action is Action.FENCE:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in an unknown state. The member must abandon all its partitions and rejoin.",
        )
    after = _trim(member, now) if action in {Action.TRIM, Action.TRIM_MORE} else _advance(member, now)
    check_next(member.state, event, after.state)
    return after


def event_of(member: Member, now: Situation) -> Event:
    if member.state is MemberState.UNKNOWN:
        return Event.HOLDING if now.owned is None or now.owned else Event.RELEASED
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if not _still_owns(member.revoking, now.owned):
            return Event.RELEASED
        return Event.HOLDING_RESUBSCRIBED if now.resubscribed else Event.HOLDING
    if member.epoch != now.target_epoch:
        return Event.BEHIND
    return Event.RESUBSCRIBED if now.resubscribed else Event.CURRENT


def _still_owns(partitions: Partitions, owned: Owned) -> bool:
    """A member that does not say what it owns may own everything."""
    if owned is None:
        return True
    return any(partition in partitions.get(topic_id, {}) for topic_id, held in owned for partition in held)


def _trim(member: Member, now: Situation) -> Member:
    """Only what is no longer subscribed to goes; the rest waits for the target assignment of the new subscription."""
    gone = {topic_id: held for topic_id, held in member.assigned.items() if not now.is_subscribed(topic_id)}
    if not gone:
        return member
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in gone}
    revoking = dict(member.revoking)
    for topic_id, held in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **held}
    if _still_owns(revoking, now.owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _advance(member: Member, now: Situation) -> Member:
    """First what must go; only a member that has given it up gets the target's epoch and what is free of its target."""
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*now.target, *member.assigned)):
        wanted = frozenset(now.target.get(topic_id, ())) if now.is_subscribed(topic_id) else frozenset()
        has = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in has.items() if partition in wanted}
        lost = {partition: epoch for partition, epoch in has.items() if partition not in wanted}
        mine = member.revoking.get(topic_id, {})
        missing = sorted(wanted - kept.keys())
        ready = [p for p in missing if p in mine or now.partition_epoch(topic_id, p) == NO_EPOCH]
        unreleased = unreleased or len(ready) < len(missing)
        if kept:
            assigned[topic_id] = kept
        if lost:
            revoking[topic_id] = lost
        if ready:
            free[topic_id] = ready
    if revoking and _still_owns(revoking, now.owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    for topic_id, ready in free.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(ready, now.target_epoch)}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=now.target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_PARTITIONS,
    )
