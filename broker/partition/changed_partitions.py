"""The partitions whose newest state in the metadata image is not applied yet, in the order of their application."""

from enum import IntEnum, auto
from uuid import UUID


class Priority(IntEnum):
    """Priority of a changed partition, the highest first."""

    COORDINATOR = auto()
    HOSTED = auto()
    NEW = auto()


class ChangedPartitions:
    """Queue of partitions, each at most once. Partitions of a higher priority are first, whenever they were added.

    A client creates 10,000 partitions, whose logs are created in slices for seconds. Two kinds of partitions must not
    wait for them:
    1. Partitions of coordinators. A consumer commits its first offsets, which creates `__consumer_offsets`. No group
       has a coordinator until its partitions are open.
    2. Partitions that this broker hosts. A broker fails, and its partitions have no leader until other brokers apply
       the change.
    """

    def __init__(self) -> None:
        self._queues: dict[Priority, dict[UUID, dict[int, None]]] = {priority: {} for priority in Priority}

    def __bool__(self) -> bool:
        return any(self._queues.values())

    def __contains__(self, key: tuple[UUID, int]) -> bool:
        topic_id, index = key
        return any(index in queue.get(topic_id, ()) for queue in self._queues.values())

    @property
    def is_urgent(self) -> bool:
        """True if the next partition is one of a coordinator, or hosted."""
        return bool(self._queues[Priority.COORDINATOR] or self._queues[Priority.HOSTED])

    def add(self, topic_id: UUID, index: int, priority: Priority) -> None:
        self._queues[priority].setdefault(topic_id, {})[index] = None

    def next(self) -> tuple[UUID, int]:
        """Return the next partition. Raise StopIteration if the queue is empty."""
        topic_id, indexes = next(iter(next(filter(None, self._queues.values())).items()))
        return topic_id, next(iter(indexes))

    def discard(self, topic_id: UUID, index: int) -> None:
        for queue in self._queues.values():
            indexes = queue.get(topic_id)
            if indexes is not None:
                indexes.pop(index, None)
                if not indexes:
                    del queue[topic_id]

    def discard_topic(self, topic_id: UUID) -> None:
        for queue in self._queues.values():
            queue.pop(topic_id, None)
