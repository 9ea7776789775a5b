"""The `range` assignor: each subscriber of a topic gets one contiguous range of its partitions.

The first subscribers get one partition more if the division has a remainder. Subscribers are sorted by instance id,
then by member id. Members with the same topics, of equal partition counts, therefore get the same partition numbers
in each topic. Such topics can be joined by partition (KIP-848, co-partitioning).
"""

from odradek.coordinator.group.assignors.spec import GroupSpec, MemberSpec, Target


def assign_range(spec: GroupSpec) -> dict[str, Target]:
    """Return the target assignment of each member. It does not depend on the previous target."""
    order = sorted(spec.members.items(), key=_sort_key)
    subscribers: dict[bytes, list[str]] = {}
    for member_id, member in order:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    targets: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id, member_ids in subscribers.items():
        share, remainder = divmod(spec.partitions[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < remainder)
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {
        member_id: member.target if targets[member_id] == member.target else targets[member_id]
        for member_id, member in spec.members.items()
    }


def _sort_key(item: tuple[str, MemberSpec]) -> tuple[bool, str]:
    member_id, member = item
    return (member.instance_id is None, member.instance_id or member_id)
