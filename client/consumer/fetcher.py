"""Fetch requests for partitions of one topic: one at a time per leader, with new leader lookups after failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.errors import ClientError, ProtocolError, check, refused
from odradek.client.network.cluster import Purpose
from odradek.client.network.retry import recovery_of
from odradek.protocol.batch import HEADER_BYTES, LENGTH_OVERHEAD
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from odradek.client.admin.offsets import IsolationLevel
    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.client.network.retry import Attempts
    from odradek.protocol.messages.fetch import PartitionData
    from odradek.protocol.schema import Buffer

FETCH_BYTES_MAX: Final = 8 * 2**20
"""Maximum size of a Fetch response in bytes, unless its first batch alone is larger."""
FETCH_WAIT_S: Final = 5.0
"""Maximum seconds that a leader waits for new records before it responds without records."""
_FRONT: Final = Packer(">qi11xi")
"""Base offset, length and last offset delta, at the begin of a batch."""


@dataclass(slots=True, eq=False)
class Reader:
    """Position of a consumer in one partition.

    `end` is the offset before which it stops, or None if it follows the log. `failure` is the failure of its last
    fetch.
    """

    index: int
    leader: int
    position: int
    end: int | None
    attempts: Attempts
    failure: int | ClientError = ErrorCode.NONE

    @property
    def done(self) -> bool:
        """Return True if all records up to `end` were read."""
        return self.end is not None and self.position >= self.end


class Fetched(NamedTuple):
    """Response to the fetch of one partition.

    `first` is the offset that was requested, `following` that of the next request. Batches may begin before `first` and
    end after the reader's `end`.
    """

    reader: Reader
    first: int
    following: int
    data: PartitionData


Responses = list[tuple[Reader, "PartitionData"]]


class Fetcher:
    """Batches of some partitions of a topic, as the leaders send them.

    Args:
        cluster: The cluster. It stays open when the fetcher ends.
        topic: The topic.
        isolation: With READ_COMMITTED, leaders send batches before the last stable offset only, and list the aborted
            transactions.
        bytes_max: Maximum size of a Fetch response in bytes, unless its first batch alone is larger.
    """

    def __init__(
        self, cluster: Cluster, topic: Topic, isolation: IsolationLevel, bytes_max: int = FETCH_BYTES_MAX
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._isolation = isolation
        self._bytes_max = bytes_max
        self._wait_ms = int(min(FETCH_WAIT_S, cluster.settings.request_timeout_s / 2) * 1000)

    async def fetched(self, readers: Sequence[Reader]) -> AsyncGenerator[Fetched, None]:
        """Yield the responses until all readers are done. The next fetches are sent before a response is yielded.

        All leaders are read concurrently; each partition is read in order. A response may have no batch.

        Raises:
            NotFound: The topic or a partition does not exist.
            Refused: A partition has no leader, or a leader refused, for longer than the retry policy allows.
            ProtocolError: The header of a batch is damaged.
        """
        running: dict[asyncio.Task[Responses], list[Reader]] = {}
        try:
            while True:
                running |= self._started(running, readers)
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                found: list[Fetched] = []
                for task in [task for task in running if task in done]:
                    del running[task]
                    for reader, data in task.result():
                        first = reader.position
                        self._advance(reader, data.records or b"")
                        found.append(Fetched(reader, first, reader.position, data))
                running |= self._started(running, readers)
                await asyncio.sleep(0)  # the new tasks send their requests
                for each in found:
                    yield each
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _started(
        self, running: dict[asyncio.Task[Responses], list[Reader]], readers: Iterable[Reader]
    ) -> dict[asyncio.Task[Responses], list[Reader]]:
        """Start a fetch per leader, and a new leader lookup per reader whose last fetch failed."""
        busy = [reader for group in running.values() for reader in group]
        started: dict[asyncio.Task[Responses], list[Reader]] = {}
        by_leader: dict[int, list[Reader]] = {}
        for reader in readers:
            if reader.done or reader in busy:
                continue
            if reader.failure:
                started[asyncio.create_task(self._relocate(reader))] = [reader]
            else:
                by_leader.setdefault(reader.leader, []).append(reader)
        for leader, group in by_leader.items():
            started[asyncio.create_task(self._fetch(leader, group))] = group
        return started

    async def _fetch(self, leader: int, readers: list[Reader]) -> Responses:
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    topic=self._topic.name,
                    topic_id=self._topic.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=reader.index, fetch_offset=reader.position, partition_max_bytes=self._bytes_max
                        )
                        for reader in readers
                    ],
                )
            ],
        )
        try:
            response = await (await self._cluster.connection(leader, Purpose.FETCH)).call(request)
        except ClientError as error:
            if recovery_of(error) is None:
                raise
            for reader in readers:
                reader.failure = error
            return []
        check(response.error_code, f"reading {self._topic.name}")
        by_index = {reader.index: reader for reader in readers}
        responses: Responses = []
        for data in (data for found in response.responses for data in found.partitions):
            reader = by_index[data.partition_index]
            reader.failure = data.error_code
            if data.error_code == ErrorCode.NONE:
                reader.attempts.reset()
                responses.append((reader, data))
        return responses

    async def _relocate(self, reader: Reader) -> Responses:
        """Wait, then find the leader again.

        Raise the failure of the last fetch if it is permanent or lasts too long.
        """
        failure = reader.failure
        if await reader.attempts.prepare(failure) is None:
            if isinstance(failure, ClientError):
                raise failure
            raise refused(failure, f"reading {self._topic.name}-{reader.index}")
        try:
            topic = await self._cluster.topic(self._topic.name, refresh=True)
        except ClientError as error:
            reader.failure = error
            return []
        reader.leader = topic.partition(reader.index).leader
        reader.failure = ErrorCode.LEADER_NOT_AVAILABLE if reader.leader == NO_LEADER else ErrorCode.NONE
        return []

    def _advance(self, reader: Reader, records: Buffer) -> None:
        """Set the position of a reader behind the last complete batch. The decoder checks the batches themselves."""
        position, end = 0, len(records)
        while end - position >= HEADER_BYTES:
            base_offset, length, last_offset_delta = _FRONT.unpack_from(records, position)
            position += LENGTH_OVERHEAD + length
            if length <= 0 or last_offset_delta < 0:
                place = f"{self._topic.name}-{reader.index}, at offset {reader.position}"
                raise ProtocolError(f"{place}: the header of a batch is damaged")
            if position > end:
                return
            reader.position = max(reader.position, base_offset + last_offset_delta + 1)
