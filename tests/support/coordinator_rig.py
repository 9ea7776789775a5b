"""The whole transaction coordinator on a fake log, with a marker sender that the test holds in its hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.protocol.errors import ErrorCode
from odradek.runtime.tasks import Tasks
from tests.support.fake_shard_log import FakeClock, FakeShardLog
from tests.support.txn_rig import ID, NOW_MS, T0, T1, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.txn_state import TxnState

SHARD = 45  # of "my-txn"


class Sender:
    """Fake marker sender.

    It responds immediately with NONE or with the next of `errors`; with `hold`, only at `release`.
    """

    def __init__(self) -> None:
        self.hold = False
        self.held: list[tuple[Sequence[Marker], asyncio.Future[MarkerResults]]] = []
        self.sent: list[tuple[int, tuple[Marker, ...]]] = []
        self.errors: list[ErrorCode | OSError] = []
        self.broken: dict[int, Exception] = {}
        """Exceptions that requests with a marker of the producer id raise."""

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> asyncio.Future[MarkerResults]:
        for marker in markers:
            if marker.producer_id in self.broken:
                raise self.broken[marker.producer_id]
        self.sent.append((broker_id, tuple(markers)))
        future: asyncio.Future[MarkerResults] = asyncio.get_running_loop().create_future()
        if self.hold:
            self.held.append((markers, future))
        else:
            self._respond(markers, future)
        return future

    def release(self) -> None:
        self.hold = False
        for markers, future in self.held:
            self._respond(markers, future)
        self.held.clear()

    def _respond(self, markers: Sequence[Marker], future: asyncio.Future[MarkerResults]) -> None:
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if isinstance(error, OSError):
            future.set_exception(error)
        else:
            future.set_result([dict.fromkeys(marker.partitions, error) for marker in markers])


class CoordinatorRig:
    def __init__(self, *, level: int = 2, wait_ms: int = 1_000, two_phase_commit: bool = False) -> None:
        self.sender = Sender()
        self.awaited: list[int] = []
        self.leaders: dict[TopicPartition, int | None] = {T0: 1, T1: 1}
        self.clock = FakeClock(NOW_MS)
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self._failed)
        self.blocks = iter([(0, 1_000), (1_000, 1_000)])
        self.pool = ProducerIdPool(self._allocate, self.tasks.spawn)
        self.coordinator = TransactionCoordinator(
            clock=self.clock,
            config=TxnConfig(wait_ms_max=wait_ms, two_phase_commit=two_phase_commit),
            producer_ids=self.pool,
            leaders=self,
            sender=self.sender,
            features=Level(level),
            shard_count=lambda: 50,
            is_assigned=self.awaited.__contains__,
            spawn=self.tasks.spawn,
            on_failure=self._failed,
        )
        self.log = FakeShardLog()

    def _failed(self, _name: str, failure: BaseException) -> None:
        self.failures.append(failure)

    async def _allocate(self) -> tuple[int, int]:
        return next(self.blocks)

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self.leaders.get(TopicPartition(topic, partition))

    def move(self, partition: TopicPartition, leader: int | None) -> None:
        """The metadata names another leader; None: the partition is gone."""
        self.leaders[partition] = leader
        self.coordinator.leaders_changed({partition: None})

    async def ready(self) -> CoordinatorRig:
        self.pool.prefetch()
        await self.coordinator.on_leadership(SHARD, 0, self.log)
        await settle()
        return self

    async def running(self, *, version: int = 2, partitions: tuple[TopicPartition, ...] = (T0,)) -> tuple[int, int]:
        """An ongoing transaction; its producer."""
        await self.ready()
        pid, epoch = self.coordinator.init_producer_id(ID, 60_000).result()
        self.coordinator.add_partitions(ID, pid, epoch, partitions, client_version=version, client_id="c").result()
        return pid, epoch

    async def state(self) -> TxnState:
        return (await self.coordinator.describe(ID)).transaction.state


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
