"""Batches of a range of offsets, undecoded, for callers that decode them themselves."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.consumer.fetcher import FETCH_BYTES_MAX, Fetcher, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from odradek.client.admin.offsets import IsolationLevel
    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import TopicPartition
    from odradek.protocol.schema import Buffer


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Batches of a Fetch response.

    Attributes:
        first: The offset that was requested. The first batch may begin before it.
        following: The offset of the next request. It is equal to `first` if there is no batch.
        data: The batches. The last one may be incomplete, and may end after the range.
        aborted: First offset and producer id of each aborted transaction. Empty with READ_UNCOMMITTED.
    """

    first: int
    following: int
    data: Buffer
    aborted: tuple[tuple[int, int], ...]


async def fetch_range(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel,
    *,
    bytes_max: int = FETCH_BYTES_MAX,
) -> AsyncGenerator[FetchedBatches, None]:
    """Yield the batches of the offsets from `start` until before `end`. One response is fetched ahead.

    If the log ends before `end`, responses without batches follow until records arrive.

    Raises:
        NotFound: The topic or the partition does not exist.
        Refused: The partition has no leader, or the leader refused, for longer than the retry policy allows. The code
            is OFFSET_OUT_OF_RANGE if `start` is before the log start offset or after the log end offset.
        ProtocolError: The header of a batch is damaged.
    """
    topic = await cluster.topic(partition.topic, refresh=True)
    leader = topic.partition(partition.partition).leader
    reader = Reader(partition.partition, leader, start, end, cluster.attempts())
    async with aclosing(Fetcher(cluster, topic, isolation, bytes_max).fetched([reader])) as responses:
        async for fetched in responses:
            aborted = tuple((each.first_offset, each.producer_id) for each in fetched.data.aborted_transactions or ())
            yield FetchedBatches(fetched.first, fetched.following, fetched.data.records or b"", aborted)
