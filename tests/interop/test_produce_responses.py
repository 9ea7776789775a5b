"""Responses to unusual Produce requests, compared with those of Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from uuid import UUID

    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop

TIMEOUT_S = 30
PARTITIONS = 3
LEADER_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors while a broker applies the creation of the topic."""
Batches = tuple[tuple[int, int], ...]
"""Partition and number of records of each batch of one topic entry."""
CASES: dict[str, tuple[int, tuple[Batches, ...]]] = {
    "partition twice": (9, (((0, 1), (1, 1), (0, 3)),)),
    "topic and partition twice": (9, (((0, 1),), ((2, 1),), ((0, 3),))),
    "partition twice, by topic id": (13, (((0, 1), (0, 3)),)),
    "unknown partition twice": (9, (((7, 1), (7, 3)),)),
}


class Side:
    """One of both brokers."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic

    async def create(self) -> UUID:
        request = CreateTopicsRequest([CreatableTopic(self.topic, PARTITIONS, 1)], TIMEOUT_S * 1_000)
        created = (await self.client.call(request, 7, timeout=TIMEOUT_S)).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        while any(error in LEADER_UNKNOWN for error, _ in await self.ends()):
            pass
        topic_id: UUID = created.topic_id
        return topic_id

    async def ends(self) -> list[tuple[int, int]]:
        """Return error and end offset of each partition."""
        partitions = [ListOffsetsPartition(index, -1, timestamp=-1) for index in range(PARTITIONS)]
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(self.topic, partitions)])
        response = await self.client.call(request, 7, timeout=TIMEOUT_S)
        rows = sorted(response.topics[0].partitions, key=lambda each: each.partition_index)
        return [(row.error_code, row.offset) for row in rows]

    async def outcome(self, version: int, entries: tuple[Batches, ...]) -> object:
        """Produce to a new topic. Return the results by partition (Kafka's order varies), and the end offsets."""
        topic_id = await self.create()
        named = {"topic_id": topic_id} if version >= 13 else {"name": self.topic}
        topics = [
            TopicProduceData(
                **named,
                partition_data=[
                    PartitionProduceData(index, build_batch([(None, b"v", 0, ())] * records))
                    for index, records in batches
                ],
            )
            for batches in entries
        ]
        request = ProduceRequest(None, -1, TIMEOUT_S * 1_000, topics)
        response = await self.client.call(request, version, timeout=TIMEOUT_S)
        results = [
            sorted((each.index, each.error_code, each.base_offset) for each in topic.partition_responses)
            for topic in response.responses
        ]
        return results, await self.ends()


@pytest.mark.parametrize(("version", "entries"), CASES.values(), ids=CASES)
async def test_partitions_named_twice_receive_the_same_responses(
    odradek_cluster: LocalCluster, kafka_broker: KafkaBroker, name: str, version: int, entries: tuple[Batches, ...]
) -> None:
    outcomes = []
    for address in (odradek_cluster.bootstrap, kafka_broker.bootstrap):
        host, _, port = address.rpartition(":")
        client = await RawClient.connect(host, int(port), client_id="produce")
        outcomes.append(await Side(client, name).outcome(version, entries))
        client.close()
    assert outcomes[0] == outcomes[1]
