"""A client of a node with offset and transaction requests of groups, on one connection."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

E = ErrorCode
BUSY = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS)


class Client:
    """One connection to a node with topic `t` of two partitions."""

    def __init__(self, node: Node, raw: RawClient) -> None:
        self.node = node
        self.raw = raw

    async def call(self, request: Any, version: int) -> Any:
        return await self.raw.call(request, version, timeout=10)

    async def ready(self, group: str = "g") -> None:
        """Find the coordinator of the group, which also creates the offsets topic."""
        reply = await self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        assert [coordinator.error_code for coordinator in reply.coordinators] == [E.NONE]

    def topic_id(self, topic: str = "t") -> Any:
        return self.node.metadata.image.topics[topic].topic_id

    async def commit(self, offset: int, *, version: int = 8, group: str = "g", partition: int = 0) -> int:
        topic = OffsetCommitRequestTopic(
            name="t",
            topic_id=self.topic_id(),
            partitions=[OffsetCommitRequestPartition(partition, offset, 3, "note")],
        )
        response = await self.call(OffsetCommitRequest(group_id=group, topics=[topic]), version)
        error: int = response.topics[0].partitions[0].error_code
        return error

    async def fetched(self, *, version: int = 8, group: str = "g", stable: bool = False) -> Any:
        """Return (offset, metadata, error) of partition 0, or the error of the group."""
        if version < 8:
            topic = OffsetFetchRequestTopic("t", [0])
            response = await self.call(
                OffsetFetchRequest(group_id=group, topics=[topic], require_stable=stable), version
            )
            error, topics = response.error_code, response.topics
        else:
            named = OffsetFetchRequestTopics("t", self.topic_id(), [0])
            group_request = OffsetFetchRequestGroup(group, topics=[named])
            response = await self.call(OffsetFetchRequest(groups=[group_request], require_stable=stable), version)
            error, topics = response.groups[0].error_code, response.groups[0].topics
        if error:
            return ErrorCode(error)
        (reply,) = topics[0].partitions
        return reply.committed_offset, reply.metadata, ErrorCode(reply.error_code)

    async def until_not_busy(self, request: Any, version: int) -> Any:
        async with asyncio.timeout(10):
            while (response := await self.call(request, version)).error_code in BUSY:
                await asyncio.sleep(0.01)
        return response

    async def producer(self) -> tuple[int, int]:
        reply = await self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        assert reply.coordinators[0].error_code == E.NONE
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        response = await self.until_not_busy(request, 4)
        return response.producer_id, response.producer_epoch

    async def commit_in_transaction(self, producer: tuple[int, int], offset: int, version: int) -> int:
        partition = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic("t", partitions=[partition])],
        )
        async with asyncio.timeout(10):
            while True:
                response = await self.call(request, version)
                error: int = response.topics[0].partitions[0].error_code
                if error not in BUSY:
                    return error
                await asyncio.sleep(0.01)

    async def end(self, producer: tuple[int, int], *, commit: bool, version: int) -> tuple[int, int]:
        response = await self.until_not_busy(EndTxnRequest("tx", *producer, commit), version)
        assert response.error_code == E.NONE
        return (response.producer_id, response.producer_epoch) if version >= 5 else producer


@asynccontextmanager
async def running(path: Path, *assignments: str, seed: int = 7) -> AsyncIterator[Client]:
    chosen = config(
        f"log.dirs={path}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions=3",
        "transaction.state.log.num.partitions=3",
        "group.initial.rebalance.delay.ms=0",
        *assignments,
    )
    unexpected: list[tuple[str, BaseException]] = []
    env = Env(OsDisk(), SystemClock(), random.Random(seed), "boot")
    node = Node(chosen, env, on_unexpected=lambda where, exception: unexpected.append((where, exception)))
    try:
        await node.start()
        raw = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        client = Client(node, raw)
        if "t" not in node.metadata.image.topics:
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        yield client
        raw.close()
    finally:
        await node.stop()
    assert unexpected == []
