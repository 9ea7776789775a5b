"""ConsumerGroupHeartbeat: a member joins, reports its partitions, receives its assignment, or leaves (KIP-848)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.coordinator.group.commands import ConsumerGroupHeartbeat, DescribableTopics
from odradek.coordinator.group.memory_accounting import ASSIGNED_BYTES
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.assignment.reconcile import HeartbeatContext, Owned, reconcile
from odradek.coordinator.group.modern.assignment.target import preferred_assignor, subscribed_names, target_for
from odradek.coordinator.group.modern.checks import (
    check_capacity,
    check_epoch,
    check_instance,
    check_released,
    check_request,
)
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.group_lookup import existing_group, group_to_join
from odradek.coordinator.group.modern.leaving import leave_temporarily, remove_members
from odradek.coordinator.group.modern.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    Member,
    MemberState,
    Partitions,
)
from odradek.coordinator.group.modern.state import Assignment as TargetAssignment
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.changes import (
    RegexChange,
    update_group_epoch,
    update_regex,
    write_member,
)
from odradek.coordinator.group.modern.transitions import Event, look_up
from odradek.coordinator.group.state import State
from odradek.protocol.errors import Refusal
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
    ResponseTopicPartitions,
)
from odradek.runtime.shard import Decision


def decide_heartbeat(state: State, command: ConsumerGroupHeartbeat, now_ms: int) -> Decision[Any]:
    """Decide a ConsumerGroupHeartbeat request. The reply is a ConsumerGroupHeartbeatResponse.

    Raise Refusal with an error of checks.py, GROUP_ID_NOT_FOUND or INVALID_REGULAR_EXPRESSION.
    """
    check_request(state, command)
    request = command.request
    if request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
        return _leave(state, request, now_ms)
    if request.member_epoch == JOIN_EPOCH:
        draft = group_to_join(state, request.group_id, now_ms)
    else:
        draft = ConsumerDraft(state, existing_group(state, request.group_id), now_ms)
    try:
        return _process(draft, command)
    except Refusal as refusal:
        return draft.fail(refusal)


def _leave(state: State, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision[Any]:
    group = existing_group(state, request.group_id)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    draft = ConsumerDraft(state, group, now_ms)
    if request.instance_id is None:
        return remove_members(draft, [group.member(request.member_id)], response)
    static = check_instance(group.static_member(request.instance_id), request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        return leave_temporarily(draft, static, response)
    return remove_members(draft, [static], response)


def _process(draft: ConsumerDraft, command: ConsumerGroupHeartbeat) -> Decision[Any]:
    request, caller = command.request, command.caller
    joins = request.member_epoch == JOIN_EPOCH
    state, group = draft.state, draft.group
    check_capacity(state, group, request.member_id, request.instance_id)
    owned = _owned(request.topic_partitions)
    before = _member(draft, request, request.member_id or state.new_id(), owned)
    member = replace(
        before,
        instance_id=_new_or_old(request.instance_id, before.instance_id),
        rack_id=_new_or_old(request.rack_id, before.rack_id),
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == NO_TIMEOUT
        else request.rebalance_timeout_ms,
        assignor=_new_or_old(request.server_assignor, before.assignor),
        topics=before.topics
        if request.subscribed_topic_names is None
        else tuple(sorted(dict.fromkeys(request.subscribed_topic_names))),
        regex=_new_or_old(request.subscribed_topic_regex, before.regex),
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    renamed = write_member(draft, before, member)
    regex = update_regex(draft, before, member)
    if caller.describable is not None and member.regex:
        _keep_describable(
            draft, member.regex, caller.describable, subscribes=request.subscribed_topic_regex is not None
        )
    reassigned = preferred_assignor(draft) != preferred_assignor(draft, before, member)
    bump = renamed or regex is RegexChange.RESOLVED or reassigned
    group_epoch = update_group_epoch(draft, before, member, bump=bump)
    epoch, target = target_for(draft, before, member, group_epoch)
    resubscribed = renamed or regex is not RegexChange.NONE
    member = reconcile_member(draft, member, epoch, target, owned, resubscribed=resubscribed)
    draft.start_session(member.member_id, state.configs.session_timeout_ms(group.group_id))
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=state.configs.heartbeat_interval_ms(group.group_id),
    )
    if joins or _is_full(request) or member.assigned != before.assigned:
        response.assignment = _assignment(member.assigned)
    return draft.decision(response)


def _keep_describable(draft: ConsumerDraft, regex: str, describable: DescribableTopics, *, subscribes: bool) -> None:
    """Store which topics the member may describe, if it subscribes or if a new coordinator does not know it.

    An evaluation without it keeps only former matches, so the expression is evaluated again.
    """
    if regex not in draft.group.describable:
        draft.start_regex_evaluation((regex, describable))
    elif subscribes:
        draft.set_describable(regex, describable)


def _new_or_old(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True for a heartbeat with all fields: the member has lost a response, and needs the full assignment."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != NO_TIMEOUT and subscribes and request.topic_partitions is not None


def _owned(topics: Sequence[RequestTopicPartitions] | None) -> Owned:
    return None if topics is None else [(topic.topic_id.bytes, topic.partitions) for topic in topics]


def _assignment(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=UUID(bytes=topic_id), partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )


def _member(draft: ConsumerDraft, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Owned) -> Member:
    """Return the member before this heartbeat, or a new one if it joins. Raise Refusal if a check fails."""
    group, joins = draft.group, request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id) or (Member(member_id) if joins else group.member(member_id))
        check_epoch(member, request.member_epoch, owned)
        return member
    static = group.static_member(request.instance_id)
    if not joins:
        static = check_instance(static, member_id, request.instance_id)
        check_epoch(static, request.member_epoch, owned)
        return static
    if static is None:
        return group.members.get(member_id) or Member(member_id)
    if not static.uses_classic:
        check_released(static, member_id, request.instance_id)
    return replace_static_member(draft, static, member_id)


def replace_static_member(draft: ConsumerDraft, static: Member, member_id: str) -> Member:
    """Give a static member a new member id. It keeps its subscription, target and partitions."""
    look_up(static.state, Event.REPLACE)
    group_id = draft.group.group_id
    member = replace(static, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.records += (
        r.current_assignment_tombstone(group_id, static.member_id),
        r.target_assignment_tombstone(group_id, static.member_id),
        r.member_tombstone(group_id, static.member_id),
        r.member_record(group_id, member),
        r.target_assignment_record(group_id, member_id, draft.group.targets.get(static.member_id, {})),
        r.current_assignment_record(group_id, member),
    )
    draft.stop_all(static.member_id)
    return member


def reconcile_member(
    draft: ConsumerDraft, member: Member, epoch: int, target: TargetAssignment, owned: Owned, *, resubscribed: bool
) -> Member:
    """Move the member one step towards the target, write its record, and update its rebalance timer."""
    after = reconcile(
        member,
        HeartbeatContext(
            target_epoch=epoch,
            target=target,
            owned=owned,
            resubscribed=resubscribed,
            is_subscribed=_Subscribed(draft.state, draft.group, member),
            partition_epoch=draft.group.partition_epoch,
        ),
    )
    if after != member:
        draft.charge(ASSIGNED_BYTES * (_count(after.assigned) - _count(member.assigned)))
        draft.records.append(r.current_assignment_record(draft.group.group_id, after))
        if not after.uses_classic:
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                draft.start_rebalance(after)
            else:
                draft.stop_rebalance(after.member_id)
    return after


def _count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


class _Subscribed:
    """Check of subscriptions by topic id. The member's topic names are collected at the first call."""

    def __init__(self, state: State, group: ConsumerGroup, member: Member) -> None:
        self._topics = state.topics
        self._group = group
        self._member = member
        self._names: dict[str, None] | None = None

    def __call__(self, topic_id: bytes) -> bool:
        topic = self._topics.by_id(topic_id)
        if self._names is None:
            self._names = subscribed_names(self._group, self._member)
        return topic is not None and topic.name in self._names
