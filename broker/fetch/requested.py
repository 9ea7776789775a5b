"""Partitions that one Fetch request names, and their slices."""

from collections.abc import Iterator
from typing import Final, TypeVar

from odradek.broker.fetch.sessions import FetchKey, FetchSlot
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

T = TypeVar("T")

PARTITIONS_PER_TURN: Final = 256
"""Maximum partitions that one fetch handles between two turns of the event loop (about 3 ms)."""

UNCOUNTED_BYTES: Final = 3 * PARTITIONS_PER_TURN
"""Bytes of a request that names fewer elements than PARTITIONS_PER_TURN: a topic or partition has three or more."""


def partition_count(request: FetchRequest) -> int:
    """Return the number of topics and partitions that the request names, also of those that leave its session."""
    count = 0
    for topic in request.topics:
        count += 1 + len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        count += 1 + len(forgotten.partitions)
    return count


def slices(elements: list[T]) -> Iterator[list[T]]:
    """Yield at most PARTITIONS_PER_TURN elements at a time; one empty slice if there is no element."""
    if len(elements) <= PARTITIONS_PER_TURN:
        yield elements
        return
    for first in range(0, len(elements), PARTITIONS_PER_TURN):
        yield elements[first : first + PARTITIONS_PER_TURN]


def requested(request: FetchRequest, *, by_id: bool) -> tuple[list[FetchSlot], list[FetchKey]]:
    """Return the partitions of the request, and those that leave its session."""
    named = [slot for topic in request.topics for slot in slots(topic, topic.partitions, by_id=by_id)]
    forgotten: list[FetchKey] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return named, forgotten


def slots(topic: FetchTopic, partitions: list[FetchPartition], *, by_id: bool) -> list[FetchSlot]:
    """Return the parameters of some partitions of `topic`."""
    name = topic.topic_id if by_id else topic.topic
    return [
        FetchSlot(
            name,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for partition in partitions
    ]
