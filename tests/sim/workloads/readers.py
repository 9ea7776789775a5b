"""Readers of both isolation levels during and after the run, and a poller of ListOffsets."""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.sim.checkers.visibility import consumer_view
from tests.sim.history import FETCH, LIST, OK, READ_COMMITTED, Operation, Partition
from tests.sim.workloads.client import NONE, Client
from tests.sim.world import TABLE

if TYPE_CHECKING:
    from tests.sim.world import World

FETCH_VERSIONS: Final = (4, 7, 11, 12)
LEADER_EPOCH_VERSION: Final = 9
"""First version of Fetch whose requests have the leader epoch that the client knows (KIP-320)."""
LIST_VERSIONS: Final = (2, 5, 7, 10)
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
TIME_VERSION: Final = 7
FINAL_FETCH_BYTES: Final = 1 << 20
FINAL_ATTEMPTS_MAX: Final = 100


class Reader(Client):
    """Reads all partitions from offset 0 on. At the end of the compacted topic, it starts again at offset 0."""

    def __init__(self, world: "World", name: str, isolation: int) -> None:
        super().__init__(world, name)
        self.isolation = isolation
        self.positions: dict[Partition, int] = dict.fromkeys(self.written, 0)

    async def run(self) -> None:
        while not self.world.stopping:
            partition = self.rng.choice(self.written)
            operation = await self.fetch(
                partition,
                max_wait_ms=self.rng.choice((0, 20, 300)),
                max_bytes=self.rng.choice((1, 500, 4000, 100_000)),
            )
            if operation.outcome != OK:
                await self.backoff()
            elif partition[0] == TABLE and operation.next_offset >= operation.last_stable_offset:
                self.positions[partition] = 0
            await asyncio.sleep(self.rng.random() * self.world.options.reader_think_seconds)
        self.close()

    async def fetch(self, partition: Partition, *, max_wait_ms: int, max_bytes: int, final: bool = False) -> Operation:
        topic, index = partition
        position = self.positions[partition]
        operation = self.invoke(FETCH, partition=partition, isolation=self.isolation, offset=position, final=final)
        try:
            node = operation.node = await self.leader_of(partition)
            fetch_partition = FetchPartition(
                partition=index,
                current_leader_epoch=self.epoch_of(partition),
                fetch_offset=position,
                partition_max_bytes=max_bytes,
            )
            request = FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=self.isolation,
                topics=[FetchTopic(topic=topic, partitions=[fetch_partition])],
            )
            version = self.rng.choice(FETCH_VERSIONS)
            if version >= LEADER_EPOCH_VERSION:
                operation.leader_epoch = fetch_partition.current_leader_epoch
            response = await self.call(request, version, node)
        except OSError as error:
            return self.settle_lost(operation, error)
        if response.error_code != NONE:
            return self.settle(operation, response.error_code)
        result = response.responses[0].partitions[0]
        if result.error_code != NONE:
            deposed = self.world.monitor.is_deposed(partition, node)
            return self.settle(operation, result.error_code, deposed=deposed)
        aborted = [
            (transaction.producer_id, transaction.first_offset) for transaction in result.aborted_transactions or ()
        ]
        records, position = consumer_view(
            bytes(result.records or b""), aborted, fetch_offset=position, committed=self.isolation == READ_COMMITTED
        )
        self.positions[partition] = position
        self.world.monitor.advertised(partition, node, result.high_watermark)
        return self.settle(
            operation,
            NONE,
            records=records,
            next_offset=position,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            stable_bound=self.world.monitor.stable_bound(partition, node),
        )

    async def read_to(self, partition: Partition, end: int) -> bool:
        """Read the partition from offset 0 to `end`. Return False if the reader makes no progress."""
        position = self.positions[partition] = 0
        failures = 0
        while position < end and failures < FINAL_ATTEMPTS_MAX:
            await self.fetch(partition, max_wait_ms=100, max_bytes=FINAL_FETCH_BYTES, final=True)
            if self.positions[partition] == position:
                failures += 1
                await self.backoff()
            position = self.positions[partition]
        return position >= end


class Poller(Client):
    """Sends ListOffsets for the end of each partition, with both isolation levels."""

    async def run(self) -> None:
        while not self.world.stopping:
            await self.poll(self.rng.choice(self.written), self.rng.choice((0, 1)))
            await asyncio.sleep(self.rng.random() * self.world.options.reader_think_seconds)
        self.close()

    async def poll_until(self, partition: Partition, isolation: int, end: int) -> Operation:
        """Repeat ListOffsets until it returns `end`, at most FINAL_ATTEMPTS_MAX times. Return the last operation."""
        for _ in range(FINAL_ATTEMPTS_MAX):
            operation = await self.poll(partition, isolation, final=True)
            if operation.outcome == OK and operation.result_offset == end:
                break
            await self.backoff()
        return operation

    async def look_up(self, partition: Partition, timestamp: int) -> tuple[int, int]:
        """Return (offset, timestamp) of ListOffsets for a timestamp or MAX_TIMESTAMP; (-2, -2) without a response."""
        topic, index = partition
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)]
                )
            ],
        )
        for _ in range(FINAL_ATTEMPTS_MAX):
            try:
                response = await self.call(request, TIME_VERSION, await self.leader_of(partition))
            except OSError:
                await self.backoff()
                continue
            result = response.topics[0].partitions[0]
            if result.error_code == NONE:
                return result.offset, result.timestamp
            self._leaders.pop(partition, None)
            await self.backoff()
        return -2, -2

    async def poll(self, partition: Partition, isolation: int, *, final: bool = False) -> Operation:
        topic, index = partition
        operation = self.invoke(LIST, partition=partition, isolation=isolation, final=final)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
            ],
        )
        try:
            node = operation.node = await self.leader_of(partition)
            response = await self.call(request, self.rng.choice(LIST_VERSIONS), node)
        except OSError as error:
            return self.settle_lost(operation, error)
        result = response.topics[0].partitions[0]
        if result.error_code == NONE:
            self.world.monitor.advertised(partition, node, result.offset)
        return self.settle(
            operation,
            result.error_code,
            result_offset=result.offset,
            stable_bound=self.world.monitor.stable_bound(partition, node),
        )
