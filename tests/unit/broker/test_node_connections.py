"""Data requests over a real connection: order, early completion of a fetch, and acks=0."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.protocol.batch import build_batch
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

LONG_MS = 600_000
LATEST = -1


@asynccontextmanager
async def client(folder: Path) -> AsyncIterator[RawClient]:
    """Start a node with a topic `t` and return a connection to it."""
    chosen = config(f"log.dirs={folder}", "listeners=PLAINTEXT://127.0.0.1:0")
    node = Node(chosen, Env(OsDisk(), SystemClock(), random.Random(7), "boot"))
    try:
        await node.start()
        connection = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        await connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        yield connection
        connection.close()
    finally:
        await node.stop()


def produce(acks: int = -1, topic: str = "t") -> ProduceRequest:
    data = build_batch([(None, b"v", SystemClock().wall_ms(), ())])
    return ProduceRequest(
        None, acks, LONG_MS, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, data)])]
    )


def fetch(offset: int) -> FetchRequest:
    topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1_000_000)])]
    return FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, session_epoch=-1, topics=topics)


def latest() -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=LATEST)])])


async def test_next_request_of_a_connection_ends_its_waiting_fetch(tmp_path: Path) -> None:
    """Spark's executors send ListOffsets behind a waiting fetch. With Kafka they stall for max_wait_ms."""
    async with client(tmp_path) as connection, asyncio.timeout(30):
        parked = connection.send(fetch(0), 12)
        assert await connection.call(latest(), 9)
        assert parked.done()  # before the response of the next request
        partition = (await parked).responses[0].partitions[0]  # type: ignore[attr-defined]  # a FetchResponse
        assert (partition.error_code, bytes(partition.records)) == (0, b"")


async def test_waiting_fetch_returns_records_produced_on_another_connection(tmp_path: Path) -> None:
    async with client(tmp_path) as reader, asyncio.timeout(30):
        port = reader._transport.get_extra_info("peername")[1]  # type: ignore[union-attr]  # it is connected
        writer = await RawClient.connect("127.0.0.1", port)
        parked = reader.send(fetch(0), 12)
        await writer.call(produce(), 11)
        assert len((await parked).responses[0].partitions[0].records) > 0  # type: ignore[attr-defined]  # as above
        writer.close()


async def test_five_produce_requests_in_flight_complete_in_order(tmp_path: Path) -> None:
    async with client(tmp_path) as connection, asyncio.timeout(30):
        requests = [connection.send(produce(), 11) for _ in range(5)]
        partitions = [(await request).responses[0].partition_responses[0] for request in requests]  # type: ignore[attr-defined]  # as above
        assert [(partition.error_code, partition.base_offset) for partition in partitions] == [
            (0, offset) for offset in range(5)
        ]


async def test_acks_zero_has_no_response_and_its_error_closes_the_connection(tmp_path: Path) -> None:
    async with client(tmp_path) as connection, asyncio.timeout(30):
        unacknowledged = connection.send(produce(acks=0), 11)
        connection._waiting.pop()
        response = await connection.call(latest(), 9)
        assert response.topics[0].partitions[0].offset == 1
        assert not unacknowledged.done()
        refused = connection.send(produce(acks=0, topic="nothing"), 11)
        error = await asyncio.wait_for(asyncio.gather(refused, return_exceptions=True), 10)
        assert isinstance(error[0], ConnectionError)
