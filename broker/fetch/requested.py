"""Partitions that one Fetch request names, and their slices."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Final, TypeVar

from odradek.broker.fetch.sessions import FetchKey, FetchSlot
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.slices import large_work
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.storage.batches.work import WorkSlice

T = TypeVar("T")

PARTITIONS_PER_TURN: Final = 256
"""Maximum partitions that one fetch handles between two turns of the event loop (about 3 ms)."""
SLOT_BYTES: Final = 200
"""Maximum bytes of one partition that a request of many partitions names (`FetchSlot`)."""
READING_BYTES: Final = 700
"""Maximum bytes of one partition in a pass over many partitions: its reading, and its result in the response."""
UNCOUNTED_BYTES: Final = 3 * PARTITIONS_PER_TURN
"""Maximum bytes of a request whose topics and partitions are not counted. Each takes at least three bytes, so such a
request names at most PARTITIONS_PER_TURN."""


def partition_count(request: FetchRequest) -> int:
    """Return the number of topics and partitions that the request names, also of those that leave its session."""
    count = 0
    for topic in request.topics:
        count += 1 + len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        count += 1 + len(forgotten.partitions)
    return count


async def await_memory(context: RequestContext, count: int) -> None:
    """Before a pass over `count` partitions, wait while the byte budget is exhausted, as other large requests do.

    One request goes on at a time, and charges for its objects in the same step.

    Raise RequestDropped if the connection ends, or is closed meanwhile.
    """
    if count <= PARTITIONS_PER_TURN:
        return
    with large_work(context) as work:
        if work is not None:
            await work.turn()


def slices(elements: list[T]) -> Iterator[list[T]]:
    """Yield at most PARTITIONS_PER_TURN elements at a time; one empty slice if there is no element."""
    if len(elements) <= PARTITIONS_PER_TURN:
        yield elements
        return
    for first in range(0, len(elements), PARTITIONS_PER_TURN):
        yield elements[first : first + PARTITIONS_PER_TURN]


def named_partitions(request: FetchRequest, *, by_id: bool) -> tuple[list[FetchSlot], list[FetchKey]]:
    """Return the partitions of the request, and those that leave its session."""
    named = [slot for topic in request.topics for slot in slots_of(topic, topic.partitions, by_id=by_id)]
    forgotten: list[FetchKey] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return named, forgotten


async def named_in_slices(
    request: FetchRequest, held: Collection[FetchKey], next_turn: Callable[[], Awaitable[None]], *, by_id: bool
) -> tuple[list[FetchSlot], list[FetchKey]]:
    """Like `named_partitions`, with turns of the event loop between slices.

    Of the partitions that leave the session, return those in `held`, the partitions of the session, once each.
    """
    work = WorkSlice(PARTITIONS_PER_TURN)
    named: list[FetchSlot] = []
    for topic in request.topics:
        for partitions in slices(topic.partitions):
            named += slots_of(topic, partitions, by_id=by_id)
            if work.spend(1 + len(partitions)):
                await next_turn()
    forgotten: dict[FetchKey, None] = {}
    for leaving in request.forgotten_topics_data:
        name = leaving.topic_id if by_id else leaving.topic
        for indexes in slices(leaving.partitions):
            forgotten |= {key: None for index in indexes if (key := (name, index)) in held}
            if work.spend(1 + len(indexes)):
                await next_turn()
    return named, list(forgotten)


def slots_of(topic: FetchTopic, partitions: list[FetchPartition], *, by_id: bool) -> list[FetchSlot]:
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
