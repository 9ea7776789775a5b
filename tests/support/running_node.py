"""A node in this process over a real directory and real sockets, and one client connection to it."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.protocol.batch import build_batch, iter_batches, iter_records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

READ_COMMITTED = 1
NOW_MS = SystemClock().wall_ms()


class RunningNode:
    """A running node, one connection to it, and the unexpected exceptions of its handlers."""

    def __init__(self, node: Node, client: RawClient, unexpected: list[tuple[str, BaseException]]) -> None:
        self.node = node
        self.client = client
        self.unexpected = unexpected

    async def call(self, request: Any, version: int) -> Any:
        return await self.client.call(request, version, timeout=10)

    async def metadata(self, name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        return (await self.call(request, 12)).topics[0]

    async def produce(
        self, name: str, *values: bytes, version: int = 11, transactional_id: str | None = None, **batch: Any
    ) -> Any:
        topic = await self.metadata(name)
        records = build_batch(
            [(None, value, NOW_MS, ()) for value in values], transactional=bool(transactional_id), **batch
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=0, records=records)]
                )
            ],
        )
        return (await self.call(request, version)).responses[0].partition_responses[0]

    async def fetch(self, name: str, isolation: int = 0) -> Any:
        topic = await self.metadata(name)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic=name, topic_id=topic.topic_id, partitions=[partition])],
        )
        response = await self.call(request, 17)
        assert response.error_code == ErrorCode.NONE
        return response.responses[0].partitions[0]

    async def values(self, name: str, isolation: int = 0) -> list[bytes | None]:
        """Return the values that a consumer reads: without control batches and, if aborted, transactional batches."""
        partition = await self.fetch(name, isolation)
        assert partition.error_code == ErrorCode.NONE
        pending = sorted(
            (transaction.first_offset, transaction.producer_id) for transaction in partition.aborted_transactions or []
        )
        aborted: dict[int, None] = {}
        values: list[bytes | None] = []
        for header, batch in iter_batches(partition.records):
            while pending and pending[0][0] <= header.last_offset:
                aborted[pending.pop(0)[1]] = None
            if header.is_control:
                aborted.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in aborted):
                values += [record.value for record in iter_records(batch, max_decompressed_bytes=1_000_000)]
        return values

    async def init(self, transactional_id: str, version: int = 4) -> Any:
        coordinators = await self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
        assert coordinators.coordinators[0].error_code == ErrorCode.NONE
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return await self.until_not_busy(request, version)

    async def until_not_busy(self, request: Any, version: int) -> Any:
        """Repeat `request` while the coordinator is loading or busy, as clients do. Return the first other response."""
        busy = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}
        async with asyncio.timeout(10):
            while True:
                response = await self.call(request, version)
                if response.error_code not in busy:
                    return response
                await asyncio.sleep(0.01)


SEEDS = itertools.count(7)
"""Seeds of the random generators: two runs of a node must not generate the same incarnation id."""


def make_node(path: Path, *assignments: str) -> tuple[Node, list[tuple[str, BaseException]]]:
    unexpected: list[tuple[str, BaseException]] = []
    node_config = config(f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0", *assignments)
    env = Env(OsDisk(), SystemClock(), random.Random(next(SEEDS)), "boot")
    return Node(
        node_config, env, on_unexpected=lambda where, exception: unexpected.append((where, exception))
    ), unexpected


@asynccontextmanager
async def running(path: Path, *assignments: str) -> AsyncIterator[RunningNode]:
    node, unexpected = make_node(path, *assignments)
    try:
        await node.start()
        client = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        yield RunningNode(node, client, unexpected)
        client.close()
    finally:
        await node.stop()
    assert unexpected == []
