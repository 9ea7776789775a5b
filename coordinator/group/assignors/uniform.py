"""The `uniform` assignor: balance the number of partitions per member with few moves, as far as subscriptions allow."""

import heapq
from collections.abc import Iterable
from itertools import islice

from odradek.coordinator.group.assignors.spec import GroupSpec, Target

PASSES_MAX = 16
"""Maximum passes over the topics to balance a group whose members subscribe to different topics."""

VISITS_MAX = 200_000
"""Maximum visits of pairs of a topic and a subscriber to balance such a group, after all partitions are assigned. They
take about 50 ms."""

Partition = tuple[bytes, int]


def assign_uniform(spec: GroupSpec) -> dict[str, Target]:
    """Return the target assignment of each member. It is sticky: partitions move only to improve the balance."""
    if not spec.members:
        return {}
    return _assign_homogeneous(spec) if spec.homogeneous else _Heterogeneous(spec).assign()


def _keep(spec: GroupSpec, member_id: str, topics: Iterable[bytes], taken: dict[Partition, None]) -> list[Partition]:
    """Return the partitions of the last target that the member may keep before balancing, and add them to `taken`."""
    target = spec.members[member_id].target
    kept = []
    for topic_id in topics:
        count = spec.partitions[topic_id]
        for partition in sorted(target.get(topic_id, ())):
            item = (topic_id, partition)
            if partition < count and item not in taken:
                taken[item] = None
                kept.append(item)
    return kept


def _as_target(partitions: Iterable[Partition], before: Target) -> Target:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    target = {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}
    return before if target == before else target


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Target]:
    """Assign the same topics to all members: each gets `share` partitions, and `extra` members get one more.

    Members that held more than `share` partitions come first for one of the extra ones.
    """
    topics = sorted(next(iter(spec.members.values())).topics)
    total = sum(spec.partitions[topic_id] for topic_id in topics)
    share, extra = divmod(total, len(spec.members))
    taken: dict[Partition, None] = {}
    held = {member_id: _keep(spec, member_id, topics, taken) for member_id in spec.members}
    quotas = {}
    for member_id, kept in held.items():
        has_extra = extra > 0 and len(kept) > share
        quotas[member_id] = share + has_extra
        extra -= has_extra
    for member_id in held:
        if extra and quotas[member_id] == share:
            quotas[member_id] += 1
            extra -= 1
    free = [
        (topic_id, p) for topic_id in topics for p in range(spec.partitions[topic_id]) if (topic_id, p) not in taken
    ]
    for member_id, kept in held.items():
        free += kept[quotas[member_id] :]
        del kept[quotas[member_id] :]
    unassigned = iter(free)
    for member_id, kept in held.items():
        kept.extend(islice(unassigned, quotas[member_id] - len(kept)))
    return {member_id: _as_target(kept, spec.members[member_id].target) for member_id, kept in held.items()}


class _Heterogeneous:
    """Assignment of members with different topics: fill the least loaded subscribers, then balance topic by topic."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.members = list(spec.members)
        self.subscribers: dict[bytes, list[int]] = {}
        """Topic id -> positions in `members`."""
        for position, member in enumerate(spec.members.values()):
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(position)
        # Topics with the most partitions per subscriber come first: later topics can still balance the load.
        self.topics = sorted(
            self.subscribers,
            key=lambda topic_id: (
                -spec.partitions[topic_id] / len(self.subscribers[topic_id]),
                len(self.subscribers[topic_id]),
                topic_id,
            ),
        )
        self.loads = [0] * len(self.members)
        self.held: dict[bytes, dict[int, list[int]]] = {topic_id: {} for topic_id in self.topics}
        """Topic id -> position of a member -> its partitions."""

    def assign(self) -> dict[str, Target]:
        taken: dict[Partition, None] = {}
        for position, member_id in enumerate(self.members):
            for topic_id, partition in _keep(self.spec, member_id, self.spec.members[member_id].topics, taken):
                self._give(topic_id, partition, position)
        for topic_id in self.topics:
            self._fill(topic_id, taken)
        self._balance()
        return self._targets()

    def _give(self, topic_id: bytes, partition: int, position: int) -> None:
        self.held[topic_id].setdefault(position, []).append(partition)
        self.loads[position] += 1

    def _fill(self, topic_id: bytes, taken: dict[Partition, None]) -> None:
        least = [(self.loads[position], position) for position in self.subscribers[topic_id]]
        heapq.heapify(least)
        for partition in range(self.spec.partitions[topic_id]):
            if (topic_id, partition) not in taken:
                load, position = least[0]
                self._give(topic_id, partition, position)
                heapq.heapreplace(least, (load + 1, position))

    def _balance(self) -> None:
        """Balance each topic with several subscribers until a pass over all topics moves nothing.

        Very large groups stop earlier, after VISITS_MAX.
        """
        shared = [topic_id for topic_id in self.topics if len(self.subscribers[topic_id]) > 1]
        unchanged = visits = 0
        for _ in range(PASSES_MAX):
            for topic_id in shared:
                visits += len(self.subscribers[topic_id])
                if visits > VISITS_MAX:
                    return
                unchanged = 0 if self._balance_topic(topic_id) else unchanged + 1
                if unchanged >= len(shared):
                    return

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of the topic from its most to its least loaded subscribers. Return True if one was moved.

        Afterwards the loads differ by at most 1, or the more loaded members have no partition of this topic.
        """
        loads, held = self.loads, self.held[topic_id]
        least = [(loads[position], position) for position in self.subscribers[topic_id]]
        most = [(-loads[position], -position) for position, partitions in held.items() if partitions]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = False
        while most:
            donor, receiver = -most[0][1], least[0][1]
            if -most[0][0] != loads[donor]:  # the member has received a partition since
                heapq.heapreplace(most, (-loads[donor], -donor))
                continue
            if least[0][0] != loads[receiver]:
                heapq.heapreplace(least, (loads[receiver], receiver))
                continue
            if loads[donor] - loads[receiver] <= 1:
                break
            partition = held[donor].pop()
            loads[donor] -= 1
            if held[donor]:
                heapq.heapreplace(most, (-loads[donor], -donor))
            else:
                heapq.heappop(most)
            self._give(topic_id, partition, receiver)
            heapq.heapreplace(least, (loads[receiver], receiver))
            moved = True
        return moved

    def _targets(self) -> dict[str, Target]:
        kept: list[list[Partition]] = [[] for _ in self.members]
        for topic_id, owners in self.held.items():
            for position, partitions in owners.items():
                kept[position] += ((topic_id, partition) for partition in partitions)
        return {
            member_id: _as_target(partitions, self.spec.members[member_id].target)
            for member_id, partitions in zip(self.members, kept, strict=True)
        }
