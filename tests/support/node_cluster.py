"""Nodes of one cluster in one process, over real sockets and directories."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.cluster.metadata.image import MetadataImage, ScramKey
from odradek.local.ports import ReservedPorts
from odradek.protocol.batch import build_batch, iter_batches, iter_records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.scram import Credential
from odradek.runtime.tasks import Tasks
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.log.reads import ColdRead
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    import ssl

UNTIL_S = 30
READ_BYTES = 1_000_000
CLUSTER_ID = "kVp1Jq8tQ4mB2cW7xYz0Ag"


class ShiftedClock(SystemClock):
    """A wall clock with a constant error."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


class NodeCluster:
    """Nodes of one cluster. `stop` fails the test if a node raised an unexpected exception."""

    def __init__(self, directory: Path, count: int, voters: int | None = None, **settings: object) -> None:
        self.directory = directory
        self._held = ReservedPorts("127.0.0.1", count)
        """Ports reserved also while a node is down: an outgoing connection could use its port otherwise."""
        self.ports = self._held.ports
        self.ids = list(range(1, count + 1))
        self.voters = ",".join(f"{node_id}@127.0.0.1:{self.port(node_id)}" for node_id in self.ids[: voters or count])
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.tls: ssl.SSLContext | None = None
        """Context of clients, if the listeners of the nodes use TLS."""
        self.boot_id = "one boot of one machine"
        self.nodes: dict[int, Node] = {}
        self.unexpected: list[tuple[str, BaseException]] = []
        self._disks: list[OsDisk] = []

    def port(self, node_id: int) -> int:
        return self.ports[node_id - 1]

    def make(
        self,
        node_id: int,
        *,
        disk: OsDisk | None = None,
        clock_ahead_ms: int = 0,
        secret: ClusterSecret | None = None,
        bootstrap_scram: Mapping[ScramKey, Credential] = MappingProxyType({}),
        **settings: object,
    ) -> Node:
        disk = disk or OsDisk()
        self._disks.append(disk)
        values = {
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port(node_id)}",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            "controller.quorum.voters": self.voters,
            "odradek.cluster.id": CLUSTER_ID,
            **self.settings,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        env = Env(disk, ShiftedClock(clock_ahead_ms), random.Random(), self.boot_id)
        assignments = [f"{name}={value}" for name, value in values.items()]
        node = Node(
            config(*assignments),
            env,
            on_unexpected=lambda where, error: self.unexpected.append((where, error)),
            secret=secret,
            bootstrap_scram=bootstrap_scram,
        )
        self.nodes[node_id] = node
        return node

    async def start(self, node_ids: Sequence[int] | None = None) -> None:
        await self.start_made({}, self.ids if node_ids is None else node_ids)

    async def start_made(self, made: Mapping[int, Node], others: Sequence[int]) -> None:
        """Start the nodes in `made`, which have their own disk or clock, together with new nodes `others`."""
        tasks = Tasks(lambda *_: None)  # awaited below
        wanted = [*made.values(), *(self.make(node_id) for node_id in others)]
        starting = [tasks.spawn(node.start(), f"start {node.config.node_id}") for node in wanted]
        for task in starting:
            await task

    async def stop(self) -> None:
        for node in reversed(list(self.nodes.values())):
            await node.stop()
        self.nodes.clear()
        for disk in self._disks:
            disk.close()
        self._held.close()
        assert not self.unexpected, self.unexpected

    async def client(self, node_id: int) -> RawClient:
        return await RawClient.connect("127.0.0.1", self.port(node_id), tls=self.tls)

    async def call(self, node_id: int, request: Any, version: int) -> Any:
        """Send one request on a new connection."""
        client = await self.client(node_id)
        try:
            return await client.call(request, version, timeout=10)
        finally:
            client.close()

    @property
    def controller(self) -> int:
        return next(node_id for node_id, node in self.nodes.items() if node.quorum.controller.is_active)

    async def until(self, node_id: int, holds: Callable[[MetadataImage], bool]) -> None:
        """Wait until `holds` returns True for the metadata of `node_id`."""
        metadata = self.nodes[node_id].metadata
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def check(_: object, image: MetadataImage) -> None:
            if holds(image) and not reached.done():
                reached.set_result(None)

        metadata.subscribe(check)
        check(None, metadata.image)
        try:
            async with asyncio.timeout(UNTIL_S):
                await reached
        finally:
            metadata.unsubscribe(check)

    async def until_in_sync(self, topic: str, members: Sequence[int]) -> None:
        """Wait until the in-sync replicas of partition 0 are exactly `members` in the metadata of each running node.

        The metadata of each node must be as new as the newest metadata of all nodes. Older metadata could contain
        `members` from before an ISR change that other nodes already have.
        """
        newest = -1
        while newest < self._newest.offset:
            newest = self._newest.offset
            for node_id in list(self.nodes):
                await self.until(node_id, partial(_in_sync, topic, sorted(members), newest))

    async def create(self, topic: str, replicas: Sequence[int], **settings: str) -> None:
        """Create a topic with one partition on `replicas`. Wait until each running node has it in its metadata."""
        wanted = CreatableTopic(
            topic,
            -1,
            -1,
            [CreatableReplicaAssignment(0, list(replicas))],
            [CreatableTopicConfig(name.replace("_", "."), value) for name, value in settings.items()],
        )
        made = await self.call(next(iter(self.nodes)), CreateTopicsRequest([wanted], 10_000), 7)
        assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0].error_message
        await self.until_in_sync(topic, replicas)

    @property
    def _newest(self) -> MetadataImage:
        """Return the newest metadata image of all nodes."""
        return max((node.metadata.image for node in self.nodes.values()), key=lambda image: image.offset)

    def leader(self, topic: str) -> int:
        partition = self._newest.partition(topic, 0)
        assert partition is not None
        return partition.leader

    async def produce(self, topic: str, *values: bytes, acks: int = -1, timeout_ms: int = 10_000) -> ErrorCode:
        """Produce once to the leader in the newest metadata, after the leader has that metadata."""
        leader, newest = self.leader(topic), self._newest.offset
        await self.until(leader, lambda image: image.offset >= newest)
        topic_image = self.nodes[leader].metadata.image.topic(topic)
        assert topic_image is not None
        records = build_batch([(None, value, SystemClock().wall_ms(), ()) for value in values])
        data = TopicProduceData("", topic_image.topic_id, [PartitionProduceData(0, records)])
        response = await self.call(leader, ProduceRequest(None, acks, timeout_ms, [data]), 13)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def values(self, topic: str, node_id: int | None = None) -> list[bytes | None]:
        """Return all values below the high watermark, read from the leader or from `node_id`."""
        source = self.leader(topic) if node_id is None else node_id
        partition = self.nodes[source].broker.context.partitions.get(topic, 0)
        assert partition is not None
        read = partition.read(0, max_bytes=READ_BYTES, limit=partition.log.high_watermark, min_one_batch=True)
        result = await partition.complete_read(read.resolve()) if isinstance(read, ColdRead) else read
        return [
            record.value
            for header, batch in iter_batches(result.records)
            if not header.is_control
            for record in iter_records(batch, max_decompressed_bytes=READ_BYTES)
        ]


def _in_sync(topic: str, members: Sequence[int], offset: int, image: MetadataImage) -> bool:
    partition = image.partition(topic, 0)
    return image.offset >= offset and partition is not None and sorted(partition.isr) == members
