"""A consumer without a group: it reads the partitions of one topic from given offsets."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, offsets_of_partitions
from odradek.client.consumer.decode import visible_batches
from odradek.client.consumer.fetcher import Fetcher, Reader
from odradek.client.errors import ProtocolError
from odradek.client.network.fan_out import gathered
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence

    from odradek.client.consumer.fetcher import Fetched
    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Partition


class ConsumerRecord(NamedTuple):
    """A record that was read. `timestamp_ms` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


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

    async def batches(self) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Yield the records of one record batch at a time.

        All leaders are read concurrently; each partition is read in order.

        Raises:
            NotFound: The topic or a partition does not exist.
            Refused: A partition has no leader, or a leader refused, for longer than the retry policy allows.
            ProtocolError: A batch is damaged.
        """
        indexes = await self._indexes()
        keys = [TopicPartition(self._name, index) for index in indexes]
        starts, ends = await gathered(*(self._offsets(keys, timestamp) for timestamp in (EARLIEST, LATEST)))
        topic = await self._cluster.topic(self._name)
        readers = [self._reader(topic.partition(key.partition), starts[key], ends[key]) for key in keys]
        async with aclosing(Fetcher(self._cluster, topic, self._isolation).fetched(readers)) as responses:
            async for fetched in responses:
                for batch in self._decoded(fetched):
                    yield batch

    async def _indexes(self) -> list[int]:
        topic = await self._cluster.topic(self._name, refresh=True)
        return [topic.partition(index).index for index in sorted(self._partitions or topic.partitions)]

    def _offsets(
        self, keys: Sequence[TopicPartition], timestamp: int
    ) -> Coroutine[Any, Any, Mapping[TopicPartition, int]]:
        return offsets_of_partitions(self._cluster, dict.fromkeys(keys, timestamp), self._isolation)

    def _reader(self, partition: Partition, first: int, last: int) -> Reader:
        named = {EARLIEST: first, LATEST: last}
        start = self._start if isinstance(self._start, int) else self._start.get(partition.index, EARLIEST)
        position = named.get(start, min(max(start, first), last))
        end = None if self._follow else last
        return Reader(partition.index, partition.leader, position, end, self._cluster.attempts())

    def _decoded(self, fetched: Fetched) -> Iterator[list[ConsumerRecord]]:
        index, first, end = fetched.reader.index, fetched.first, fetched.reader.end
        aborted = [(each.first_offset, each.producer_id) for each in fetched.data.aborted_transactions or ()]
        try:
            for records, last_offset in visible_batches(fetched.data.records or b"", aborted):
                visible = [
                    ConsumerRecord(
                        self._name,
                        fetched.reader.index,
                        each.offset,
                        each.timestamp,
                        each.key,
                        each.value,
                        each.headers,
                    )
                    for each in records
                    if each.offset >= first and (end is None or each.offset < end)
                ]
                first = max(first, last_offset + 1)
                if visible:
                    yield visible
                if end is not None and first >= end:
                    return
        except Malformed as error:
            raise ProtocolError(f"{self._name}-{index}, at offset {first}: {error}") from error
