"""Members of the classic protocol in a consumer group (KIP-848, online migration).

Their generation is their member epoch. A Heartbeat receives REBALANCE_IN_PROGRESS if the member must rejoin. Their
JoinGroup reports the owned partitions, so it corresponds to a heartbeat of the consumer protocol. `classic_requests`
has made the checks that do not depend on the group.
"""

from dataclasses import replace
from typing import Any, Final

from odradek.coordinator.group.classic.commands import join_refused
from odradek.coordinator.group.classic.member import Protocols, protocols_of
from odradek.coordinator.group.commands import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from odradek.coordinator.group.modern.assignment.target import may_assign, target_for
from odradek.coordinator.group.modern.checks import check_capacity, check_instance
from odradek.coordinator.group.modern.conversion.consumer_protocol import (
    encode_member_assignment,
    partitions_by_topic_id,
)
from odradek.coordinator.group.modern.conversion.downgrade import (
    convert_to_classic,
    may_downgrade_by,
    others_are_reconciled,
)
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.group_lookup import existing_group
from odradek.coordinator.group.modern.heartbeat import reconcile_member, replace_static_member
from odradek.coordinator.group.modern.leaving import remove_members
from odradek.coordinator.group.modern.member import NO_MEMBER_EPOCH, NO_TIMEOUT, ClassicMember, Member, MemberState
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.changes import (
    RegexChange,
    update_group_epoch,
    update_regex,
    write_member,
)
from odradek.coordinator.group.state import State
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL, subscription_of, version_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.runtime.shard import Decision

MEMBER_ID_REQUIRED_VERSION: Final = 4
"""First version of JoinGroup in which a new dynamic member receives a member id, and then joins with it (KIP-394)."""
MIGRATION_POLICIES: Final = ("upgrade", "downgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow members of both protocols in one group."""


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any]:
    """Decide a JoinGroup request to a consumer group that has members. The reply is a JoinGroupResponse."""
    request, group = command.request, existing_group(state, command.request.group_id)
    if state.configs.broker().consumer_migration_policy.lower() not in MIGRATION_POLICIES:
        raise _inconsistent(
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration "
            "is disabled."
        )
    is_unknown = not request.member_id
    member_id = request.member_id or state.new_id()
    check_capacity(state, group, member_id, request.group_instance_id)
    protocols = protocols_of(request.protocols)
    if not _supports(group, request.protocol_type, [name for name, _ in protocols]):
        raise _inconsistent(f"Member {member_id}'s protocols are not supported.")
    knows_member_id_required = command.caller.api_version >= MEMBER_ID_REQUIRED_VERSION
    if is_unknown and knows_member_id_required and request.group_instance_id is None:
        return Decision(join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    draft = ConsumerDraft(state, group, now_ms)
    try:
        return _join(draft, command, member_id, protocols, is_unknown=is_unknown)
    except Refusal as refusal:
        return draft.fail(refusal)


def _join(
    draft: ConsumerDraft, command: JoinGroup, member_id: str, protocols: Protocols, *, is_unknown: bool
) -> Decision[Any]:
    request, group = command.request, draft.group
    static = group.static_member(request.group_instance_id)
    before = _joining(draft, static, request, member_id, is_unknown=is_unknown)
    try:
        subscription = subscription_of(protocols[0][1])
    except Malformed as malformed:
        raise Refusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from malformed
    member = replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == NO_TIMEOUT
        else request.rebalance_timeout_ms,
        topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        regex="",
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )
    member = _joined(draft, before, member, static, subscription)
    return draft.decision(
        JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
        )
    )


def _joining(
    draft: ConsumerDraft, static: Member | None, request: JoinGroupRequest, member_id: str, *, is_unknown: bool
) -> Member:
    instance_id = request.group_instance_id
    if instance_id is not None:
        if not is_unknown:
            return check_instance(static, member_id, instance_id)
        if static is not None:
            return replace_static_member(draft, static, member_id)
    return draft.group.members.get(member_id) or Member(member_id)


def _joined(
    draft: ConsumerDraft,
    before: Member,
    member: Member,
    static: Member | None,
    subscription: ConsumerProtocolSubscription,
) -> Member:
    """Process the join like a heartbeat. If no member of the consumer protocol stays, convert the group instead."""
    group = draft.group
    downgrade = static is not None and may_downgrade_by(draft, static)
    renamed = write_member(draft, before, member)
    resubscribed = update_regex(draft, before, member) is not RegexChange.NONE or renamed
    group_epoch = update_group_epoch(draft, before, member, bump=resubscribed)
    topics = partitions_by_topic_id(
        ((owned.topic, owned.partitions) for owned in subscription.owned_partitions), draft.state.topics
    )
    owned = [(topic_id, sorted(partitions)) for topic_id, partitions in topics.items()]
    if static is not None and downgrade:
        settled = group.assignment_epoch == group_epoch and others_are_reconciled(group, static)
        if settled:
            target = group.target_of(member)
            member = reconcile_member(draft, member, group.assignment_epoch, target, owned, resubscribed=resubscribed)
        convert_to_classic(draft, {}, joining=member, rebalance=not settled)
        return replace(member, epoch=group.epoch)
    epoch, target = target_for(draft, before, member, group_epoch)
    member = reconcile_member(draft, member, epoch, target, owned, resubscribed=resubscribed)
    assert member.classic is not None
    draft.stop_join(member.member_id)
    draft.start_session(member.member_id, member.classic.session_timeout_ms)
    draft.start_sync(member)
    return member


def _supports(group: ConsumerGroup, protocol_type: str, names: list[str]) -> bool:
    """Return True if all members of the classic protocol support one of the member's protocols."""
    if protocol_type != CONSUMER_PROTOCOL:
        return False
    return any(group.classic_protocols.get(name, 0) == group.classic_members for name in names)


def _inconsistent(message: str) -> Refusal:
    return Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _checked_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the member of a request. Raise Refusal(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION)."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
    if not member.uses_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise Refusal(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member_id}.",
        )
    return member


def decide_sync(state: State, command: SyncGroup, now_ms: int) -> Decision[Any]:
    """Decide a SyncGroup request to a consumer group.

    The reply is a SyncGroupResponse with the assignment in the embedded protocol of the member.
    """
    request, group = command.request, existing_group(state, command.request.group_id)
    member = _checked_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL:
        raise _inconsistent(f"The protocol type {request.protocol_type} is not that of the group.")
    if request.protocol_name is not None and request.protocol_name != name:
        raise _inconsistent(
            f"The protocol name {request.protocol_name} is not {name}, the name in the JoinGroup response."
        )
    draft = ConsumerDraft(state, group, now_ms)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        draft.start_join(member)
        return draft.decision(
            Refusal(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin.",
            )
        )
    draft.stop_sync(member.member_id)
    draft.start_session(member.member_id, member.classic.session_timeout_ms)
    try:
        assignment = encode_member_assignment(member.assigned, state.topics, version_of(metadata))
    except Malformed as malformed:  # an upgrade may have decoded another protocol of this member
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "Malformed embedded consumer protocol.") from malformed
    return draft.decision(
        SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )
    )


def decide_heartbeat(state: State, command: Heartbeat, now_ms: int) -> Decision[Any]:
    """Decide a Heartbeat request of a classic member of a consumer group.

    The reply is a HeartbeatResponse, with REBALANCE_IN_PROGRESS if the member must rejoin.
    """
    request, group = command.request, existing_group(state, command.request.group_id)
    member = _checked_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    draft = ConsumerDraft(state, group, now_ms)
    draft.start_session(member.member_id, member.classic.session_timeout_ms)
    response = HeartbeatResponse()
    if _should_rejoin(draft, member):
        draft.start_join(member)
        response.error_code = ErrorCode.REBALANCE_IN_PROGRESS
    return draft.decision(response)


def _should_rejoin(draft: ConsumerDraft, member: Member) -> bool:
    group = draft.group
    if group.assignment_epoch < group.epoch and may_assign(draft):
        # The join computes the target assignment. Kafka waits for a heartbeat of the consumer protocol. If the group
        # has no such member and may not be converted back, partitions of removed members would have no owner.
        return True
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _awaits_partitions(group, member)


def _awaits_partitions(group: ConsumerGroup, member: Member) -> bool:
    """Return True if another member still holds a partition of the member's target assignment."""
    return any(
        partition not in member.assigned.get(topic_id, {})
        and group.partition_epoch(topic_id, partition) != NO_MEMBER_EPOCH
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def decide_leave(state: State, command: LeaveGroup, now_ms: int) -> Decision[Any]:
    """Decide a LeaveGroup request to a consumer group. It can remove members of both protocols.

    The reply is a LeaveGroupResponse with an error code for each member.
    """
    group = existing_group(state, command.request.group_id)
    responses, leaving = [], {}
    for identity in command.request.members:
        response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            member = _leaving(group, identity)
        except Refusal as refusal:
            response.error_code = refusal.error
        else:
            leaving[member.member_id] = member
        responses.append(response)
    return remove_members(
        ConsumerDraft(state, group, now_ms), list(leaving.values()), LeaveGroupResponse(members=responses)
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    static = group.static_member(instance_id)
    member_id = identity.member_id or (static.member_id if static is not None else "")
    return check_instance(static, member_id, instance_id)
