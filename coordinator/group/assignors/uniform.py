"""`uniform`: as many partitions for each member as for any other, as far as subscriptions allow, and as few moves."""

import heapq
from collections.abc import Iterable
from itertools import islice

from odradek.coordinator.group.assignors.spec import GroupSpec, Target

PASSES_MAX = 16
"""How often the topics are gone through again to even out groups whose members subscribe to different topics."""

Partition = tuple[bytes, int]


def assign_uniform(spec: GroupSpec) -> dict[str, Target]:
    """Sticky: a partition leaves a member only when the balance asks for it."""
    if not spec.members:
        return {}
    return _assign_same(spec) if spec.homogeneous else _Mixed(spec).assign()


def _valid(spec: GroupSpec, member_id: str, topics: Iterable[bytes], taken: dict[Partition, None]) -> list[Partition]:
    """What the member keeps of its old target before any balancing; it is `taken` then."""
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


def _assign_same(spec: GroupSpec) -> dict[str, Target]:
    """All members subscribe to the same topics: everybody gets `share` partitions, `extra` members one more.

    Who had more than a share keeps one of the extra partitions, as long as there are some.
    """
    topics = sorted(next(iter(spec.members.values())).topics)
    total = sum(spec.partitions[topic_id] for topic_id in topics)
    share, extra = divmod(total, len(spec.members))
    taken: dict[Partition, None] = {}
    held = {member_id: _valid(spec, member_id, topics, taken) for member_id in spec.members}
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


class _Mixed:
    """Members subscribe to different topics: partitions go to the subscriber with the fewest, then topics are evened out."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.members = list(spec.members)
        self.subscribers: dict[bytes, list[int]] = {}
        """Topic id -> positions in `members`."""
        for position, member in enumerate(spec.members.values()):
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(position)
        # The fuller a topic's subscribers get by it, the earlier: what can go to few members goes before they are full.
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
            for topic_id, partition in _valid(self.spec, member_id, self.spec.members[member_id].topics, taken):
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
        """Go through the topics until a whole round has moved nothing."""
        shared = [topic_id for topic_id in self.topics if len(self.subscribers[topic_id]) > 1]
        quiet = 0
        for _ in range(PASSES_MAX):
            for topic_id in shared:
                quiet = 0 if self._even_out(topic_id) else quiet + 1
                if quiet >= len(shared):
                    return

    def _even_out(self, topic_id: bytes) -> bool:
        """Move partitions of the topic from its fullest to its emptiest subscribers. True when something has moved.

        A load is at most 1 from another when this ends, or the fuller member has nothing of this topic.
        """
        loads, held = self.loads, self.held[topic_id]
        least = [(loads[position], position) for position in self.subscribers[topic_id]]
        most = [(-loads[position], -position) for position, partitions in held.items() if partitions]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = False
        while most:
            donor, receiver = -most[0][1], least[0][1]
            if -most[0][0] != loads[donor]:  # it has become a receiver since
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
