"""A classic group becomes a consumer group when the first member of the consumer protocol joins it (KIP-848).

Its members stay, and go on with JoinGroup, SyncGroup and Heartbeat (classic_members.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.coordinator.group.classic.conversion import ClassicMemberView, members_of, release
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.conversion.consumer_protocol import by_topic_id
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import ClassicMember, Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.modern.subscriptions.metadata_hash import group_hash
from odradek.coordinator.group.state import CONSUMER_PROTOCOL, Group
from odradek.protocol.consumer_protocol import assignment_of, subscription_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

UPGRADES: Final = ("upgrade", "bidirectional")
"""Values of `group.consumer.migration.policy` that allow it."""


def to_consumer(draft: ConsumerDraft, classic: Group) -> None:
    """`draft.group` becomes what `classic` is. Raises Refusal(GROUP_ID_NOT_FOUND) when it may not."""
    assert isinstance(classic, ClassicGroup)
    members = members_of(classic)
    if not classic.is_empty:
        _check(draft, classic, len(members))
    release(draft, classic)
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


def _not_upgraded(classic: ClassicGroup, why: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )


def _fill(draft: ConsumerDraft, classic: ClassicGroup, members: Sequence[ClassicMemberView]) -> None:
    group, topics = draft.group, draft.state.topics
    group.epoch = group.assignment_epoch = classic.generation
    try:
        said = [(view, _subscription(classic, view)) for view in members]
        targets = [_assigned(draft, classic, view) for view in members]
    except Malformed as malformed:
        raise _not_upgraded(classic, "the embedded consumer protocol is malformed") from malformed
    holders: dict[tuple[bytes, int], str] = {}
    for view, target in zip(members, targets, strict=True):
        for item in _items(target):
            if holders.setdefault(item, view.member_id) != view.member_id:
                raise _not_upgraded(classic, "a partition is assigned to two of its members")
        group.targets[view.member_id] = target
    for view, subscription in said:
        # A cooperative member keeps what it owns while the group rebalances, and may not have heard yet that it is not to
        # have it: it is its own until it joins again. (Kafka looks at assignments alone, and gives it away at once.)
        owned = ((topic.topic, topic.partitions) for topic in subscription.owned_partitions)
        for item in _items(by_topic_id(owned, topics)):
            holders.setdefault(item, view.member_id)
    for view, subscription in said:
        group.put_member(_member(classic, view, subscription, holders))
        draft.start_session(view.member_id, view.session_timeout_ms)
    if classic.state is ClassicState.STABLE and _all_is_assigned(draft, group):
        group.metadata_hash = group_hash(group.subscriptions.topics(), topics, draft.state.topic_hashes)
    write_group(draft, group)


def _all_is_assigned(draft: ConsumerDraft, group: ConsumerGroup) -> bool:
    """Does the assignment of the classic group's leader cover what there is to share?

    It does not when members have left or topics have grown since, which the leader was about to mend. Left as it is, without the
    hash of its topics, the group goes on to its next epoch with the member that joins, even where that takes the place of a
    static one and changes nothing by itself. (In Kafka what is nobody's then remains nobody's until the next change.)
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
    return by_topic_id(
        ((topic.topic, topic.partitions) for topic in assignment.assigned_partitions), draft.state.topics
    )


def _subscription(classic: ClassicGroup, view: ClassicMemberView) -> ConsumerProtocolSubscription:
    # A group in its first rebalance has chosen no protocol yet: all of them say the same of the topics.
    return subscription_of(dict(view.protocols).get(classic.protocol_name or "", view.protocols[0][1]))


def _member(
    classic: ClassicGroup,
    view: ClassicMemberView,
    subscription: ConsumerProtocolSubscription,
    holders: Mapping[tuple[bytes, int], str],
) -> Member:
    epoch = classic.generation
    assigned: dict[bytes, dict[int, int]] = {}
    for (topic_id, partition), member_id in holders.items():
        if member_id == view.member_id:
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
    """Everything about the group, in Kafka's order."""
    group_id, members = group.group_id, group.members.values()
    draft.records += (
        *(r.member_record(group_id, member) for member in members),
        r.group_record(group_id, group.epoch, group.metadata_hash),
        *(r.target_assignment_record(group_id, member_id, target) for member_id, target in group.targets.items()),
        r.target_metadata_record(group_id, group.assignment_epoch, group.assignment_ms),
        *(r.current_assignment_record(group_id, member) for member in members),
    )
