"""`range`: each topic is cut into one run of partitions for each of its subscribers, the first ones a partition longer.

Subscribers come in the order of their instance ids, then of their member ids, so members that subscribe to the same
topics with the same number of partitions get the same numbers of each: their partitions can be joined.
"""

from odradek.coordinator.group.assignors.spec import GroupSpec, MemberSpec, Target


def assign_range(spec: GroupSpec) -> dict[str, Target]:
    """Not sticky: a target follows from who is there."""
    order = sorted(spec.members.items(), key=_rank)
    subscribers: dict[bytes, list[str]] = {}
    for member_id, member in order:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    targets: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id, member_ids in subscribers.items():
        share, longer = divmod(spec.partitions[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < longer)
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {
        member_id: member.target if targets[member_id] == member.target else targets[member_id]
        for member_id, member in spec.members.items()
    }


def _rank(item: tuple[str, MemberSpec]) -> tuple[bool, str]:
    member_id, member = item
    return (member.instance_id is None, member.instance_id or member_id)
