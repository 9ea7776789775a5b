"""Reader with a fetch session (KIP-227): the broker keeps its positions and responds with changed partitions only."""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.sim.checkers.visibility import consumer_view
from tests.sim.history import FAIL, FETCH, OK, READ_COMMITTED, Operation, Partition
from tests.sim.workloads.client import LOST, NONE, NOT_SENT, Client

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch import FetchResponse, PartitionData
    from tests.sim.world import World

VERSION: Final = 12
NO_SESSION: Final = 0
ONLY_NODE: Final = 1
EPOCH_LAST: Final = 0x7FFFFFFF
CATCH_UP_ATTEMPTS_MAX: Final = 300


class SessionReader(Client):
    """Reads all partitions in one session with a single broker. Every error or lost connection starts a new session."""

    def __init__(self, world: "World", name: str, isolation: int) -> None:
        super().__init__(world, name)
        self.isolation = isolation
        self.positions: dict[Partition, int] = dict.fromkeys(self.written, 0)
        self._session = NO_SESSION
        self._epoch = 0
        self._sent: dict[Partition, int] = {}

    async def run(self) -> None:
        while not self.world.stopping:
            if not await self.fetch_once(max_wait_ms=self.rng.choice((0, 50, 300))):
                await self.backoff()
            await asyncio.sleep(self.rng.random() * self.world.options.reader_think_seconds)
        self.close()

    async def catch_up(self) -> list[str]:
        """Read all partitions to their end. Return those that are not read after CATCH_UP_ATTEMPTS_MAX fetches."""
        models = self.world.monitor.partitions.items()
        ends = {partition: model.end for partition, model in models if partition in self.positions}
        for _ in range(CATCH_UP_ATTEMPTS_MAX):
            if all(self.positions[partition] >= end for partition, end in ends.items()):
                break
            if not await self.fetch_once(max_wait_ms=50):
                await self.backoff()
        self.close()
        return [
            f"{partition} at {self.positions[partition]} of {end}"
            for partition, end in ends.items()
            if self.positions[partition] < end
        ]

    async def fetch_once(self, *, max_wait_ms: int) -> bool:
        """Send one Fetch. It names only partitions with a new position, or all in a new session."""
        changed = {
            partition: position
            for partition, position in self.positions.items()
            if self._sent.get(partition) != position
        }
        operations = {
            partition: self.invoke(FETCH, partition=partition, isolation=self.isolation, offset=position)
            for partition, position in self.positions.items()
        }
        try:
            response: FetchResponse = await self.call(self._request(changed, max_wait_ms), VERSION, ONLY_NODE)
        except OSError:
            self._forget()
            for operation in operations.values():
                self.settle(operation, LOST)
            return False
        if response.error_code != NONE:
            self._forget()
            for operation in operations.values():
                self.world.history.complete(operation, FAIL, self.world.now(), error=NOT_SENT)
            return False
        self._session = response.session_id
        self._epoch = 1 if self._epoch in {0, EPOCH_LAST} else self._epoch + 1
        self._sent.update(changed)
        if self._session == NO_SESSION:
            self._forget()
        succeeded = True
        for topic in response.responses:
            for partition_data in topic.partitions:
                partition = (topic.topic, partition_data.partition_index)
                succeeded = self._take(operations.pop(partition), partition, partition_data) and succeeded
        for operation in operations.values():  # no response for these partitions: nothing was read
            self.world.history.complete(operation, FAIL, self.world.now(), error=NOT_SENT)
        return succeeded

    def _take(self, operation: Operation, partition: Partition, partition_data: "PartitionData") -> bool:
        if partition_data.error_code != NONE:
            self.settle(operation, partition_data.error_code)
            return False
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in partition_data.aborted_transactions or ()
        ]
        records, position = consumer_view(
            bytes(partition_data.records or b""),
            aborted,
            fetch_offset=operation.offset,
            committed=self.isolation == READ_COMMITTED,
        )
        self.positions[partition] = position
        self.settle(
            operation,
            NONE,
            records=records,
            next_offset=position,
            high_watermark=partition_data.high_watermark,
            last_stable_offset=partition_data.last_stable_offset,
            stable_bound=self.world.monitor.stable_bound(partition, ONLY_NODE),
        )
        return operation.outcome == OK

    def _request(self, changed: dict[Partition, int], max_wait_ms: int) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, index), position in changed.items():
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=self.epoch_of((topic, index)),
                    fetch_offset=position,
                    partition_max_bytes=50_000,
                )
            )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=200_000,
            isolation_level=self.isolation,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )

    def _forget(self) -> None:
        self._session, self._epoch = NO_SESSION, 0
        self._sent.clear()
