"""Checks of ConsumerGroupHeartbeat requests. The error messages are Kafka's."""

from typing import Final

from odradek.coordinator.group.commands import ConsumerGroupHeartbeat
from odradek.coordinator.group.modern.assignment.reconcile import Owned
from odradek.coordinator.group.modern.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    Member,
    Partitions,
)
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal

CLIENT_MADE_IDS_VERSION = 1
"""First version of ConsumerGroupHeartbeat in which the client generates its member id (KIP-1082)."""
JAVA_WHITESPACE: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's `String.trim` removes. A name of other white space is valid."""
GROUP_VERSION = 1
"""Level of `group.version` with the consumer protocol."""


def check_request(state: State, command: ConsumerGroupHeartbeat) -> None:
    """Raise Refusal (UNSUPPORTED_VERSION, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) if the request is invalid."""
    request, version = command.request, command.caller.api_version
    if state.features.group_version() < GROUP_VERSION:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    epoch = request.member_epoch
    if version >= CLIENT_MADE_IDS_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_text(request.member_id, "MemberId")
    _check_text(request.group_id, "GroupId")
    _check_text(request.instance_id, "InstanceId")
    _check_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignors = state.configs.broker().consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip(JAVA_WHITESPACE):
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def check_capacity(state: State, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise Refusal(GROUP_MAX_SIZE_REACHED) for a new member of a full group.

    A member with the instance id of a static member replaces that one, so the group does not grow.
    """
    size_max = state.configs.broker().consumer_max_size
    known = member_id in group.members or group.static_member(instance_id) is not None
    if len(group.members) >= size_max and not known:
        raise Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_epoch(member: Member, epoch: int, owned: Owned) -> None:
    """Raise Refusal(FENCED_MEMBER_EPOCH) unless `epoch` is the member's epoch.

    The previous epoch is valid if the member owns only assigned partitions: the response with the new epoch may have
    been lost.
    """
    if epoch in {JOIN_EPOCH, member.epoch}:
        return
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member)
    if epoch != member.previous_epoch or not _is_within(owned, member.assigned):
        raise _fenced("smaller", epoch, member)


def _fenced(how: str, epoch: int, member: Member) -> Refusal:
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(owned: Owned, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and all(partition in assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned
    )


def check_instance(static: Member | None, member_id: str, instance_id: str) -> Member:
    """Return the static member. Raise Refusal(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) unless it has this member id."""
    if static is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
        )
    return static


def check_released(static: Member, member_id: str, instance_id: str) -> None:
    """Raise Refusal(UNRELEASED_INSTANCE_ID) unless the static member has left temporarily."""
    if static.epoch != STATIC_LEAVE_EPOCH:
        raise Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {static.member_id} member.",
        )
