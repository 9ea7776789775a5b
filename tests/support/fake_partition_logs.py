"""Partition logs that scripted brokers serve to consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.client import IsolationLevel
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.batches import batch

if TYPE_CHECKING:
    from tests.support.fake_kafka import FakeKafka, Step

TOPIC = "t"
EARLIEST_TIMESTAMP = -2


@dataclass
class Logs:
    """Partition logs that the brokers of a FakeKafka serve: batches, and faults of the next fetches by partition."""

    kafka: FakeKafka
    batches: dict[int, list[bytes]]
    ends: dict[int, int]
    first: int = 0
    stable: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    codes: dict[int, list[ErrorCode]] = field(default_factory=dict)
    faults: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kafka.leaders.setdefault(TOPIC, [1] * len(self.batches))
        self.kafka.script(ListOffsetsRequest, *[self.offsets] * 10)
        self.kafka.script(FetchRequest, *[self.fetch] * 200)

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        [topic] = request.topics
        rows = []
        for partition in topic.partitions:
            end = self.ends[partition.partition_index]
            if request.isolation_level == IsolationLevel.READ_COMMITTED:
                end = self.stable.get(partition.partition_index, end)
            offset = self.first if partition.timestamp == EARLIEST_TIMESTAMP else end
            rows.append(ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=offset))
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=rows)])

    def fetch(self, request: FetchRequest) -> Step:
        if self.faults:
            return self.faults.pop(0)
        node_id = self.kafka.received[-1].node_id
        [topic] = request.topics
        rows = [self._partition(node_id, partition.partition, partition.fetch_offset) for partition in topic.partitions]
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=topic.topic_id, partitions=rows)])

    def _partition(self, node_id: int, index: int, offset: int) -> PartitionData:
        codes = self.codes.get(index, [])
        if codes:
            return PartitionData(partition_index=index, error_code=codes.pop(0))
        if self.kafka.leaders[TOPIC][index] != node_id:
            return PartitionData(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first) for first, producer_id in self.aborted
        ]
        remaining = [data for data in self.batches[index] if last_offset(data) >= offset]
        return PartitionData(partition_index=index, aborted_transactions=aborted, records=b"".join(remaining[:2]))


def last_offset(data: bytes) -> int:
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


def three_records(kafka: FakeKafka) -> Logs:
    return Logs(kafka, {0: [batch(0, b"a", b"b"), batch(2, b"c")]}, {0: 3})
