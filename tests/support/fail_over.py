"""A producer, successive transaction coordinators, and real partitions, run step by step.

The coordinator can fail at each step.

A step is one of: the coordinator's log commits its records, a WriteTxnMarkers request arrives, its response arrives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.coordinator.txn.commands import TV2
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.protocol.batch import control_type, iter_batches, iter_records
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Tasks
from odradek.storage.log.reads import ColdRead
from odradek.storage.producers.entry import Origin
from tests.support.coordinator_rig import SHARD
from tests.support.data_rig import NOW_MS, Rig, batch
from tests.support.fake_shard_log import FakeClock, FakeShardLog
from tests.support.txn_rig import ID, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from odradek.coordinator.txn.state import ProducerIdentity

LEADER = 1
RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Errors that producers retry."""
TURNS_MAX = 1_000


class World:
    """A producer, its coordinators and the partitions.

    The coordinator fails before step `lose_at` (None: never). With `keeps`, its successor has its uncommitted records,
    too. With `zombie`, requests of the failed coordinator arrive after those of its successor.
    """

    def __init__(self, folder: Path, *, lose_at: int | None, keeps: bool, zombie: bool, level: int) -> None:
        self.data = Rig(folder)
        self.data.topic("t", 2)
        self.lose_at, self.keeps, self.zombie, self.level = lose_at, keeps, zombie, level
        self.steps = 0
        self.lost = False
        self.held: list[tuple[Sequence[Marker], asyncio.Future[MarkerResults]]] = []
        self.results: list[tuple[asyncio.Future[MarkerResults], MarkerResults]] = []
        self.late: list[Sequence[Marker]] = []
        self.late_errors: list[ErrorCode] = []
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda _name, failure: self.failures.append(failure))
        self.log = FakeShardLog(lag=True)
        self.next_block = 0
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> TransactionCoordinator:
        pool = ProducerIdPool(self._allocate, self.tasks.spawn)
        pool.prefetch()
        return TransactionCoordinator(
            clock=FakeClock(NOW_MS),
            config=TxnConfig(),
            producer_ids=pool,
            leaders=self,
            sender=self,
            features=Level(self.level),
            shard_count=lambda: 50,
            is_assigned=lambda _shard: False,
            spawn=self.tasks.spawn,
            on_failure=lambda _name, failure: self.failures.append(failure),
        )

    async def _allocate(self) -> tuple[int, int]:
        self.next_block += 1_000
        return self.next_block, 1_000

    # ---- ports of the coordinator -----------------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> int | None:
        return LEADER

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> asyncio.Future[MarkerResults]:
        future: asyncio.Future[MarkerResults] = asyncio.get_running_loop().create_future()
        self.held.append((markers, future))
        return future

    # ---- steps ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.coordinator.on_leadership(SHARD, 0, self.log)
        await settle()

    async def step(self) -> None:
        """Run the next step, or fail the coordinator over instead."""
        if self.steps == self.lose_at and not self.lost:
            await self._fail_over()
        elif self.results:
            self.steps += 1
            future, results = self.results.pop(0)
            future.set_result(results)
        elif self.held:
            self.steps += 1
            markers, future = self.held.pop(0)
            self.results.append((future, self.data.services.markers.write(markers).result()))
        elif self.log.high_watermark < self.log.log_end_offset:
            self.steps += 1
            self.log.commit()
        await settle()

    async def _fail_over(self) -> None:
        self.lost = True
        old = self.log
        log = FakeShardLog(lag=True, leader_epoch=old.leader_epoch + 1)
        log.entries = old.entries if self.keeps else [entry for entry in old.entries if entry[0] < old.high_watermark]
        log.high_watermark = old.high_watermark
        old.refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.zombie:
            self.late = [markers for markers, _ in self.held]
        self.held, self.results = [], []
        self.coordinator.stop()
        self.log, self.coordinator = log, self._new_coordinator()
        await self.coordinator.on_leadership(SHARD, log.leader_epoch, log)

    def deliver_late(self) -> None:
        """Deliver the requests of the failed coordinator."""
        late, self.late = self.late, []
        for markers in late:
            results = self.data.services.markers.write(markers).result()
            self.late_errors += [error for result in results for error in result.values()]

    # ---- the producer -----------------------------------------------------------------------------------------------

    async def call(self, request: Callable[[TransactionCoordinator], asyncio.Future[Any]]) -> Any:
        """Call the current coordinator until it responds, and retry as a client does."""
        for _ in range(TURNS_MAX):
            try:
                future = request(self.coordinator)
                while not future.done():
                    await self.step()
                return future.result()
            except Refusal as refusal:
                if refusal.error not in RETRIABLE:
                    raise
            await self.step()
        raise AssertionError(f"no response after {TURNS_MAX} steps")

    async def finish(self) -> None:
        """Run steps until none is left."""
        for _ in range(TURNS_MAX):
            if not (self.held or self.results or self.log.high_watermark < self.log.log_end_offset):
                return
            await self.step()
        raise AssertionError(f"unfinished after {TURNS_MAX} steps")

    def write(self, index: int, identity: ProducerIdentity, sequence: int) -> None:
        partition = self.data.partition("t", index)
        producer_id, epoch = identity
        guard = partition.log.producers.start_verification(
            producer_id, epoch, sequence, supports_epoch_bump=self.level == TV2
        )
        data = batch(producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        partition.append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)

    def history(self, index: int) -> list[str]:
        """Return the batches of the partition as "data", "COMMIT" or "ABORT". A repeated marker is named once."""
        log = self.data.partition("t", index).log
        read = log.read(0, max_bytes=1 << 20, limit=log.log_end_offset, min_one_batch=True)
        assert not isinstance(read, ColdRead)
        names: list[str] = []
        for header, raw in iter_batches(read.records):
            if not header.is_control:
                names.append("data")
                continue
            (record,) = iter_records(raw, max_decompressed_bytes=1 << 20)
            name = control_type(record.key or b"").name
            if names[-1] != name:
                names.append(name)
        return names

    def stable(self, index: int) -> bool:
        log = self.data.partition("t", index).log
        return log.last_stable_offset == log.log_end_offset


PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))


async def two_transactions(world: World) -> None:
    """Commit one transaction over both partitions, and abort the next one."""
    await world.start()
    identity = await world.call(lambda coordinator: coordinator.init_producer_id(ID, 60_000))
    sequence = 0
    for commit in (True, False):
        ended = await transaction(world, identity, sequence, commit=commit)
        identity, sequence = (ended, 0) if world.level == TV2 else (identity, sequence + 1)
    await world.finish()


async def transaction(world: World, identity: ProducerIdentity, sequence: int, *, commit: bool) -> ProducerIdentity:
    """Run one transaction and return the producer identity of the next one."""
    pid, epoch = identity
    version = TV2 if world.level == TV2 else 0
    await world.call(lambda coordinator: coordinator.add_partitions(ID, pid, epoch, PARTITIONS, client_version=version))
    for index in (0, 1):
        world.write(index, identity, sequence)
    ended: ProducerIdentity = await world.call(
        lambda coordinator: coordinator.end_txn(ID, pid, epoch, commit=commit, client_version=version)
    )
    return ended


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)
