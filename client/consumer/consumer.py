"""A consumer without a group: it reads the partitions of one topic from given offsets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, fetch_offsets
from odradek.client.consumer.decode import visible_batches
from odradek.client.errors import ClientError, ProtocolError, Refused, check, refused
from odradek.client.network.cluster import Purpose
from odradek.client.network.fan_out import FanOut, gathered
from odradek.client.network.retry import recovery_of
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.client.network.retry import Attempts
    from odradek.protocol.messages.fetch import PartitionData

    Fetched = list[tuple["Reader", PartitionData]]

FETCH_BYTES_MAX: Final = 8 * 2**20
"""Maximum size of a Fetch response in bytes, unless its first batch alone is larger."""
FETCH_WAIT_S: Final = 5.0
"""Maximum seconds that a leader waits for new records before it responds without records."""


class ConsumerRecord(NamedTuple):
    """A record that was read. `timestamp_ms` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


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


class Consumer:
    """Records of a topic, up to the end at the time of the first fetch or, with `follow`, without end.

    ```python
    async for batch in Consumer(cluster, "payments").batches():
        for record in batch:
            print(record.value)
    ```

    Args:
        cluster: The cluster. It stays open when the consumer ends.
        topic: The topic.
        partitions: Partition indexes. An empty sequence selects all partitions.
        start: The first offset, or EARLIEST, or LATEST. It is limited to the offsets that the log has. A mapping has
            the start of each partition; a partition that it lacks starts with EARLIEST.
        follow: Continue at the end and wait for new records.
        isolation: READ_COMMITTED omits records of open and aborted transactions.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partitions: Sequence[int] = (),
        start: int | Mapping[int, int] = EARLIEST,
        follow: bool = False,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self._cluster = cluster
        self._name = topic
        self._partitions = partitions
        self._start = start
        self._follow = follow
        self._isolation = isolation
        self._wait_ms = int(min(FETCH_WAIT_S, cluster.settings.request_timeout_s / 2) * 1000)

    async def batches(self) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Yield the records of one record batch at a time.

        All leaders are read concurrently; each partition is read in order.

        Raises:
            NotFound: The topic or a partition does not exist.
            Refused: A partition has no leader, or a leader refused, for longer than the retry policy allows.
            ProtocolError: A batch is damaged.
        """
        topic = await self._cluster.topic(self._name, refresh=True)
        readers = await self._readers(topic)
        running: dict[asyncio.Task[Fetched], list[Reader]] = {}
        try:
            while True:
                busy = [reader for group in running.values() for reader in group]
                idle = [reader for reader in readers if not reader.done and reader not in busy]
                running |= self._started(topic, idle)
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    del running[task]
                    for reader, data in task.result():
                        for batch in self._decoded(reader, data):
                            yield batch
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _readers(self, topic: Topic) -> list[Reader]:
        wanted = [topic.partition(index) for index in sorted(self._partitions or topic.partitions)]
        fan_out = FanOut(self._cluster)
        ends, starts = await gathered(
            fetch_offsets(fan_out, [topic], LATEST, self._isolation),
            fetch_offsets(fan_out, [topic], EARLIEST, self._isolation),
        )
        readers = []
        for partition in wanted:
            key = (topic.name, partition.index)
            if key not in ends or key not in starts:
                problem = f"{topic.name}-{partition.index} has no leader that responds"
                remedy = f"see: odradek topics describe {topic.name}"
                raise Refused(problem, remedy, code=ErrorCode.LEADER_NOT_AVAILABLE)
            first, last = starts[key], ends[key]
            named = {EARLIEST: first, LATEST: last}
            start = self._start if isinstance(self._start, int) else self._start.get(partition.index, EARLIEST)
            position = named.get(start, min(max(start, first), last))
            end = None if self._follow else last
            readers.append(Reader(partition.index, partition.leader, position, end, self._cluster.attempts()))
        return readers

    def _started(self, topic: Topic, idle: Iterable[Reader]) -> dict[asyncio.Task[Fetched], list[Reader]]:
        """Start a fetch per leader, and a new leader lookup per reader whose last fetch failed."""
        started: dict[asyncio.Task[Fetched], list[Reader]] = {}
        by_leader: dict[int, list[Reader]] = {}
        for reader in idle:
            if reader.failure:
                started[asyncio.create_task(self._relocate(reader))] = [reader]
            else:
                by_leader.setdefault(reader.leader, []).append(reader)
        for leader, readers in by_leader.items():
            started[asyncio.create_task(self._fetch(topic, leader, readers))] = readers
        return started

    async def _fetch(self, topic: Topic, leader: int, readers: list[Reader]) -> Fetched:
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=reader.index, fetch_offset=reader.position, partition_max_bytes=FETCH_BYTES_MAX
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
        check(response.error_code, f"reading {topic.name}")
        by_index = {reader.index: reader for reader in readers}
        fetched: Fetched = []
        for data in (data for found in response.responses for data in found.partitions):
            reader = by_index[data.partition_index]
            reader.failure = data.error_code
            if data.error_code == ErrorCode.NONE:
                reader.attempts.reset()
                fetched.append((reader, data))
        return fetched

    async def _relocate(self, reader: Reader) -> Fetched:
        """Wait, then find the leader again.

        Raise the failure of the last fetch if it is permanent or lasts too long.
        """
        failure = reader.failure
        if await reader.attempts.prepare(failure) is None:
            if isinstance(failure, ClientError):
                raise failure
            raise refused(failure, f"reading {self._name}-{reader.index}")
        try:
            topic = await self._cluster.topic(self._name, refresh=True)
        except ClientError as error:
            reader.failure = error
            return []
        reader.leader = topic.partition(reader.index).leader
        reader.failure = ErrorCode.LEADER_NOT_AVAILABLE if reader.leader == NO_LEADER else ErrorCode.NONE
        return []

    def _decoded(self, reader: Reader, data: PartitionData) -> Iterator[list[ConsumerRecord]]:
        aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        try:
            for records, last_offset in visible_batches(data.records or b"", aborted):
                first, end = reader.position, reader.end
                visible = [
                    ConsumerRecord(
                        self._name, reader.index, each.offset, each.timestamp, each.key, each.value, each.headers
                    )
                    for each in records
                    if each.offset >= first and (end is None or each.offset < end)
                ]
                reader.position = max(first, last_offset + 1)
                if visible:
                    yield visible
                if reader.done:
                    return
        except Malformed as error:
            raise ProtocolError(f"{self._name}-{reader.index}, at offset {reader.position}: {error}") from error
