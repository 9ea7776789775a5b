"""The target assignment of a group epoch (KIP-848)."""

from collections.abc import Mapping

from odradek.coordinator.group.assignors.range import assign_range
from odradek.coordinator.group.assignors.spec import Assignor, GroupSpec, MemberSpec, Target
from odradek.coordinator.group.assignors.uniform import assign_uniform
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import Assignment, ConsumerGroup, Counts
from odradek.coordinator.group.ports import Topics

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors by their names in `group.consumer.assignors` and in heartbeats."""


def target_for(draft: ConsumerDraft, before: Member, member: Member, group_epoch: int) -> tuple[int, Assignment]:
    """Return (epoch, target assignment of `member`). Compute it if the group epoch is newer than the target assignment.

    It is computed at most once per `group.consumer.assignment.interval.ms` (KIP-1263). Until then, members move
    towards the old target. The next computation includes all changes since the last one.
    """
    group = draft.group
    if group.assignment_epoch >= group_epoch or not may_assign(draft):
        return group.assignment_epoch, group.target_of(member)
    targets = _computed(draft, before, member)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            draft.records.append(r.target_assignment_record(group.group_id, member_id, target))
    draft.records.append(r.target_metadata_record(group.group_id, group_epoch, draft.now_ms))
    return group_epoch, targets[member.member_id]


def may_assign(draft: ConsumerDraft) -> bool:
    """Return True if the last target assignment is old enough for a new one, or in the future after a clock change."""
    group = draft.group
    interval_ms = draft.state.configs.assignment_interval_ms(group.group_id)
    return not group.assignment_ms or not 0 <= draft.now_ms - group.assignment_ms < interval_ms


def _computed(draft: ConsumerDraft, before: Member, member: Member) -> dict[str, Target]:
    group = draft.group
    members = {**group.members, member.member_id: member}
    old_targets: dict[str, Target] = dict(group.targets)
    replaced = group.static_ids.get(member.instance_id or "", member.member_id)
    if replaced != member.member_id:
        del members[replaced]
        old_targets[member.member_id] = group.targets.get(replaced, {})
    topics = draft.state.topics
    partitions: dict[bytes, int] = {}
    subscriptions: dict[tuple[tuple[str, ...], str | None], tuple[bytes, ...]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        subscriber = members[member_id]
        key = (subscriber.topics, subscriber.regex)
        if key not in subscriptions:
            subscriptions[key] = _topic_ids(subscribed_names(group, subscriber), topics, partitions)
        specs[member_id] = MemberSpec(subscriptions[key], old_targets.get(member_id, {}), subscriber.instance_id)
    assignor = ASSIGNORS[preferred_assignor(draft, before, member)]
    # Kafka compares counts of subscribers per topic. These do not include a member without topics, and all other
    # members could lose their partitions.
    homogeneous = len({frozenset(ids) for ids in subscriptions.values()}) == 1
    return assignor(GroupSpec(specs, partitions, homogeneous))


def subscribed_names(group: ConsumerGroup, member: Member) -> dict[str, None]:
    """Return the topics that the member subscribes to by name, and those that match its regular expression."""
    names = dict.fromkeys(member.topics)
    resolved = group.resolved.get(member.regex) if member.regex else None
    return names if resolved is None else names | dict.fromkeys(resolved.topics)


def _topic_ids(names: Mapping[str, None], topics: Topics, partitions: dict[bytes, int]) -> tuple[bytes, ...]:
    ids = []
    for name in names:
        topic = topics.by_name(name)
        if topic is not None:
            ids.append(topic.topic_id)
            partitions[topic.topic_id] = topic.partitions
    return tuple(ids)


def preferred_assignor(draft: ConsumerDraft, before: Member | None = None, after: Member | None = None) -> str:
    """Return the assignor that most members request, or the configured default. `before` is replaced by `after`."""
    counts = Counts(draft.group.assignors)
    if before is not None and before.assignor is not None:
        counts.add(before.assignor, -1)
    if after is not None and after.assignor is not None:
        counts.add(after.assignor, 1)
    return most_preferred(counts, draft.state.configs.broker().consumer_assignors)


def most_preferred(counts: Mapping[str, int], assignors: tuple[str, ...]) -> str:
    requested = [name for name in assignors if counts.get(name)]
    return max(requested, key=lambda name: counts[name], default=assignors[0])
