"""A fake of the cluster connections: one topic, whose batches a fetch returns as a broker does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.client.network.metadata import Partition, Topic, TopicPartition
from odradek.console.model.partition_log import Bounds, PartitionReader
from odradek.protocol.batch import build_batch, read_header
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.special_values import LATEST, NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from odradek.protocol.record import Headers

NAME = "payments"


@dataclass
class FakeLog:
    """Fake of `Cluster` for reads of records, with one broker, and a leaderless partition if `leaderless` names one.

    `fetches` has the partition and the offset of each fetch. `throttled` is the number of fetches to which it responds
    without partitions, as Kafka's brokers do while a quota is exceeded. It does not return the offsets of a time of the
    partitions in `undated`.
    """

    partitions: int = 1
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    fetches: list[tuple[int, int]] = field(default_factory=list)
    offset_requests: int = 0
    leaderless: int | None = None
    throttled: int = 0
    undated: Collection[int] = ()

    def append(
        self,
        records: Iterable[tuple[int, bytes]],
        partition: int = 0,
        compression: Compression = Compression.NONE,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Append a batch with a time and a value per record."""
        rows = [(key, value, time_ms, headers) for time_ms, value in records]
        batch = build_batch(rows, base_offset=self.bounds(partition).high, compression=compression)
        self.logs.setdefault(partition, []).append(batch)

    def bounds(self, partition: int = 0) -> Bounds:
        """Return the offsets of a partition. All records are stable."""
        batches = self.logs.get(partition)
        high = read_header(batches[-1]).last_offset + 1 if batches else 0
        return Bounds(0, high, high)

    def reader(self, bytes_max: int) -> PartitionReader:
        """Return a reader of the first partition."""
        return PartitionReader(self, self._topic(), TopicPartition(NAME, 0), self.bounds(), bytes_max)  # type: ignore[arg-type]

    async def topic(self, name: str, *, refresh: bool) -> Topic:
        assert (name, refresh) == (NAME, True)
        return self._topic()

    def attempts(self) -> None:
        """Return no attempts: no request fails."""

    async def request(self, _: int, request: Any, **versions: int) -> FetchResponse | ListOffsetsResponse:
        """Return offsets, or the batches from the one with the offset on, up to the limit, but the first one whole."""
        if isinstance(request, ListOffsetsRequest):
            self.offset_requests += 1
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(topic.name, [*map(self._offset, topic.partitions)])
                    for topic in request.topics
                ]
            )
        wanted = request.topics[0].partitions[0]
        self.fetches.append((wanted.partition, wanted.fetch_offset))
        if self.throttled:
            self.throttled -= 1
            return FetchResponse(throttle_time_ms=1)
        records = b""
        for batch in self.logs.get(wanted.partition, ()):
            is_first = not records
            if read_header(batch).last_offset < wanted.fetch_offset:
                continue
            if not is_first and len(records) + len(batch) > wanted.partition_max_bytes:
                break
            records += batch
        data = PartitionData(partition_index=wanted.partition, records=records, aborted_transactions=[])
        return FetchResponse(responses=[FetchableTopicResponse(topic=NAME, partitions=[data])])

    def _offset(self, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        offset = self.bounds(wanted.partition_index).high if wanted.timestamp == LATEST else 0
        if wanted.timestamp >= 0 and wanted.partition_index in self.undated:
            return ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=offset)

    def _topic(self) -> Topic:
        partitions = {
            index: Partition(index, NO_LEADER if index == self.leaderless else 1, 0, (1,), (1,))
            for index in range(self.partitions)
        }
        return Topic(NAME, UUID(int=1), internal=False, partitions=partitions, error_code=0)
