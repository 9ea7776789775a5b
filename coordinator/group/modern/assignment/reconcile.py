"""Reconciliation: each heartbeat moves a member one step towards its target assignment (KIP-848)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from odradek.coordinator.group.modern.member import NO_MEMBER_EPOCH, NO_PARTITIONS, Member, MemberState, Partitions
from odradek.coordinator.group.modern.state import Assignment
from odradek.coordinator.group.modern.transitions import Action, Event, check_next, look_up
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal

Owned = Sequence[tuple[bytes, Sequence[int]]] | None
"""(topic id, partitions) that the member reports as owned, or None if the heartbeat does not report them."""


@frozen_dataclass(frozen=True, slots=True)
class HeartbeatContext:
    """State of the group at a heartbeat. `resubscribed`: this heartbeat has changed the member's subscription."""

    target_epoch: int
    target: Assignment
    owned: Owned
    resubscribed: bool
    is_subscribed: Callable[[bytes], bool]
    """Return True if the member subscribes to the topic with this id."""
    partition_epoch: Callable[[bytes, int], int]
    """Return the epoch at which a member holds the partition, or NO_MEMBER_EPOCH."""


def reconcile(member: Member, context: HeartbeatContext) -> Member:
    """Return the member after one step, or the same object. Raise Refusal(FENCED_MEMBER_EPOCH) in an unknown state."""
    event = event_of(member, context)
    action = look_up(member.state, event)
    if action is Action.KEEP:
        return member
    if action is Action.FENCE:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in an unknown state. The member must abandon all its partitions and rejoin.",
        )
    after = _trim(member, context) if action in {Action.TRIM, Action.TRIM_MORE} else _advance(member, context)
    check_next(member.state, event, after.state)
    return after


def event_of(member: Member, context: HeartbeatContext) -> Event:
    if member.state is MemberState.UNKNOWN:
        return Event.NOT_REVOKED if context.owned is None or context.owned else Event.REVOKED
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if not _still_owns(member.revoking, context.owned):
            return Event.REVOKED
        return Event.NOT_REVOKED_RESUBSCRIBED if context.resubscribed else Event.NOT_REVOKED
    if member.epoch != context.target_epoch:
        return Event.BEHIND
    return Event.RESUBSCRIBED if context.resubscribed else Event.CURRENT


def _still_owns(partitions: Partitions, owned: Owned) -> bool:
    """Return True if the member still owns one of the partitions, or does not report what it owns."""
    if owned is None:
        return True
    return any(partition in partitions.get(topic_id, {}) for topic_id, held in owned for partition in held)


def _trim(member: Member, context: HeartbeatContext) -> Member:
    """Remove partitions of topics that the member no longer subscribes to.

    The next target assignment decides the rest.
    """
    unsubscribed = {topic_id: held for topic_id, held in member.assigned.items() if not context.is_subscribed(topic_id)}
    if not unsubscribed:
        return member
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in unsubscribed}
    revoking = dict(member.revoking)
    for topic_id, held in unsubscribed.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **held}
    if _still_owns(revoking, context.owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _advance(member: Member, context: HeartbeatContext) -> Member:
    """Return `member` after one step towards its target assignment.

    The first step revokes the partitions that the target does not contain. When the member has released them, the next
    step moves it to the target epoch and assigns the partitions of the target that no other member owns.
    """
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*context.target, *member.assigned)):
        target = frozenset(context.target.get(topic_id, ())) if context.is_subscribed(topic_id) else frozenset()
        has = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in has.items() if partition in target}
        lost = {partition: epoch for partition, epoch in has.items() if partition not in target}
        to_revoke = member.revoking.get(topic_id, {})
        missing = sorted(target - kept.keys())
        ready = [p for p in missing if p in to_revoke or context.partition_epoch(topic_id, p) == NO_MEMBER_EPOCH]
        unreleased = unreleased or len(ready) < len(missing)
        if kept:
            assigned[topic_id] = kept
        if lost:
            revoking[topic_id] = lost
        if ready:
            free[topic_id] = ready
    if revoking and _still_owns(revoking, context.owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    for topic_id, ready in free.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(ready, context.target_epoch)}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=context.target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_PARTITIONS,
    )
