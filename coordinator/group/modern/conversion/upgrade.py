"""Convert a classic group into a consumer group when the first member of the consumer protocol joins (KIP-848).

The classic members stay in the group, and go on using JoinGroup, SyncGroup and Heartbeat (classic_members.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.coordinator.group.classic.conversion import ClassicMemberView, members_of, release_waiters
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.conversion.consumer_protocol import partitions_by_topic_id
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import ClassicMember, Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.metadata_hash import group_hash
from odradek.coordinator.group.state import Group
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL, assignment_of, subscription_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

UPGRADES: Final = ("upgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow this conversion."""


def convert_to_consumer(draft: ConsumerDraft, classic: Group) -> None:
    """Fill `draft.group` from `classic`. Raise Refusal(GROUP_ID_NOT_FOUND) if the conversion is not allowed."""
    assert isinstance(classic, ClassicGroup)
    members = members_of(classic)
    if not classic.is_empty:
        _check(draft, classic, len(members))
    release_waiters(draft, classic)
    draft.records += classic.tombstones()
    if not classic.is_empty:
        _fill(draft, classic, members)


def _check(draft: ConsumerDraft, classic: ClassicGroup, size: int) -> None:
    config = draft.state.configs.broker()
    if config.consumer_migration_policy.lower() not in UPGRADES:
        raise _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL:
        raise _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if size > config.consumer_max_size:
        raise _not_upgraded(classic, "the group size exceeds the consumer group maximum size")
    # The records of the group contain all of it, in one batch. A larger group is refused before it is decoded.
    total = sum(
        len(view.assignment) + sum(len(metadata) for _, metadata in view.protocols) for view in members_of(classic)
    )
    if total > config.record_batch_bytes_max:
        raise _not_upgraded(classic, "the metadata of its members exceeds the maximum size of a record batch")


def _not_upgraded(classic: ClassicGroup, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _fill(draft: ConsumerDraft, classic: ClassicGroup, members: Sequence[ClassicMemberView]) -> None:
    group, topics = draft.group, draft.state.topics
    group.epoch = group.assignment_epoch = classic.generation
    try:
        subscriptions = [(view, _subscription(classic, view)) for view in members]
        targets = [_assigned(draft, classic, view) for view in members]
    except Malformed as malformed:
        raise _not_upgraded(classic, "the embedded consumer protocol is malformed") from malformed
    holders: dict[tuple[bytes, int], str] = {}
    for view, target in zip(members, targets, strict=True):
        for item in _items(target):
            if holders.setdefault(item, view.member_id) != view.member_id:
                raise _not_upgraded(classic, "a partition is assigned to two of its members")
        group.targets[view.member_id] = target
    for view, subscription in subscriptions:
        # During a rebalance, a cooperative member keeps its owned partitions until it joins again, even if the new
        # assignment does not contain them. (Kafka reads only assignments, and gives such partitions to other members.)
        owned = ((topic.topic, topic.partitions) for topic in subscription.owned_partitions)
        for item in _items(partitions_by_topic_id(owned, topics)):
            holders.setdefault(item, view.member_id)
    held: dict[str, list[tuple[bytes, int]]] = {}
    for item, member_id in holders.items():
        held.setdefault(member_id, []).append(item)
    for view, subscription in subscriptions:
        group.put_member(_member(classic, view, subscription, held.get(view.member_id, [])))
        draft.start_session(view.member_id, view.session_timeout_ms)
    if classic.state is ClassicState.STABLE and _is_complete(draft, group):
        group.metadata_hash = group_hash(group.subscriptions.topics(), topics, draft.state.topic_hashes)
    write_group(draft, group)


def _is_complete(draft: ConsumerDraft, group: ConsumerGroup) -> bool:
    """Return True if the classic leader's assignment contains all partitions of the subscribed topics.

    It does not if members have left, or topics have more partitions, since the assignment. The group then keeps no
    metadata hash, so that the joining member starts a new epoch, even if it only replaces a static member. (In Kafka,
    the missing partitions have no owner until the next change.)
    """
    assigned = {item for target in group.targets.values() for item in _items(target)}
    infos = (draft.state.topics.by_name(name) for name in group.subscriptions.topics())
    return assigned == {
        (info.topic_id, number) for info in infos if info is not None for number in range(info.partitions)
    }


def _items(partitions: Mapping[bytes, Iterable[int]]) -> list[tuple[bytes, int]]:
    return [(topic_id, partition) for topic_id in partitions for partition in sorted(partitions[topic_id])]


def _assigned(draft: ConsumerDraft, classic: ClassicGroup, view: ClassicMemberView) -> dict[bytes, frozenset[int]]:
    if not view.assignment:
        return {}
    assignment = assignment_of(view.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    return partitions_by_topic_id(
        ((topic.topic, topic.partitions) for topic in assignment.assigned_partitions), draft.state.topics
    )


def _subscription(classic: ClassicGroup, view: ClassicMemberView) -> ConsumerProtocolSubscription:
    # A group in its first rebalance has not selected a protocol. The protocols of a member contain the same topics.
    return subscription_of(dict(view.protocols).get(classic.protocol_name or "", view.protocols[0][1]))


def _member(
    classic: ClassicGroup,
    view: ClassicMemberView,
    subscription: ConsumerProtocolSubscription,
    held: Sequence[tuple[bytes, int]],
) -> Member:
    epoch = classic.generation
    assigned: dict[bytes, dict[int, int]] = {}
    for topic_id, partition in held:
        assigned.setdefault(topic_id, {})[partition] = epoch
    return Member(
        view.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=view.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=view.rebalance_timeout_ms,
        client_id=view.client_id,
        client_host=view.client_host,
        topics=tuple(sorted(dict.fromkeys(subscription.topics))),
        assigned=assigned,
        classic=ClassicMember(view.session_timeout_ms, view.protocols),
    )


def write_group(draft: ConsumerDraft, group: ConsumerGroup) -> None:
    """Write all records of the group, in Kafka's order."""
    group_id, members = group.group_id, group.members.values()
    draft.records += (
        *(r.member_record(group_id, member) for member in members),
        r.group_record(group_id, group.epoch, group.metadata_hash),
        *(r.target_assignment_record(group_id, member_id, target) for member_id, target in group.targets.items()),
        r.target_metadata_record(group_id, group.assignment_epoch, group.assignment_ms),
        *(r.current_assignment_record(group_id, member) for member in members),
    )
