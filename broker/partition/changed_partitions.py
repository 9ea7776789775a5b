"""The partitions whose newest state in the metadata image is not applied yet, in the order of their application."""

from uuid import UUID


class ChangedPartitions:
    """Queue of partitions, each at most once. Urgent ones are before the others, whenever they were added.

    Partitions of coordinators are urgent. Without that, clients wait with COORDINATOR_LOAD_IN_PROGRESS:
    1. A client creates 10,000 partitions. Their logs are opened in slices, which takes seconds.
    2. The first consumer commits offsets, which creates `__consumer_offsets`.
    3. Its partitions would be opened last, and no group would have a coordinator until then.
    """

    def __init__(self) -> None:
        self._urgent: dict[UUID, dict[int, None]] = {}
        self._other: dict[UUID, dict[int, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._urgent or self._other)

    def __contains__(self, key: tuple[UUID, int]) -> bool:
        topic_id, index = key
        return index in self._urgent.get(topic_id, ()) or index in self._other.get(topic_id, ())

    @property
    def is_urgent(self) -> bool:
        """True if the next partition is urgent."""
        return bool(self._urgent)

    def add(self, topic_id: UUID, index: int, *, urgent: bool) -> None:
        queue = self._urgent if urgent else self._other
        queue.setdefault(topic_id, {})[index] = None

    def next(self) -> tuple[UUID, int]:
        """Return the next partition. Raise StopIteration if the queue is empty."""
        topic_id, indexes = next(iter((self._urgent or self._other).items()))
        return topic_id, next(iter(indexes))

    def discard(self, topic_id: UUID, index: int) -> None:
        for queue in (self._urgent, self._other):
            indexes = queue.get(topic_id)
            if indexes is not None:
                indexes.pop(index, None)
                if not indexes:
                    del queue[topic_id]

    def discard_topic(self, topic_id: UUID) -> None:
        self._urgent.pop(topic_id, None)
        self._other.pop(topic_id, None)
