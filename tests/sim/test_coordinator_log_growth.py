"""Growth of the coordinators' logs over a month of transactions: later weeks use no more space than the first.

One broker on virtual time; each transaction commits the offsets of a group. Each day has a transactional id and a group
of its own; those of a week ago expire. The test models one of 50 partitions of each topic, at a 6,912th of 100
transactions per second and a 6,912th of segment.bytes. Periodic jobs run less often by the same factor.
`tests/unit/broker/partition/test_compaction_growth.py` covers more cases, on logs that are written by hand.
"""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

import odradek.broker.coordinators.groups
import odradek.broker.coordinators.transactions
import odradek.broker.partition.background_jobs
import odradek.broker.process.expiry_clock
import odradek.broker.server.disk_space
from odradek.broker.config.sources import load
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.network import Latency, Network
from odradek.simulation.environment.trace import Trace
from tests.sim.cluster.node_config import ROOT
from tests.sim.faults.small_limits import limited
from tests.sim.options.run_options import KILL, generate_options
from tests.sim.run import Run, logs_into
from tests.sim.workloads.client import GROUP_KEY, Client
from tests.sim.world import CONSUMER_OFFSETS, PORT, TOPIC, TRANSACTION_STATE, host_name

DAY_MS: Final = 24 * 60 * 60 * 1000
DAYS: Final = 30
TRANSACTIONS_PER_DAY: Final = 25
SCALE: Final = 100 * DAY_MS // 1000 // 50 // TRANSACTIONS_PER_DAY
SEGMENT_BYTES: Final = 104_857_600 // SCALE
STEP_MS: Final = DAY_MS // TRANSACTIONS_PER_DAY
PLACES: Final = ((TRANSACTION_STATE, 0), (CONSUMER_OFFSETS, 0))
TOPIC_PARTITIONS: Final = 4
ATTEMPTS_MAX: Final = 100
CLIENTS_LAST_VERSION: Final = 5
SETTINGS: Final[dict[str, object]] = {
    "log.dirs": ROOT,
    "node.id": 1,
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "advertised.listeners": f"PLAINTEXT://{host_name(1)}:{PORT}",
    "log.segment.bytes": SEGMENT_BYTES,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": SEGMENT_BYTES,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "transactional.id.expiration.ms": 7 * DAY_MS,
    "log.cleaner.backoff.ms": STEP_MS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": STEP_MS,
    "log.flush.offset.checkpoint.interval.ms": STEP_MS,
    "log.flush.start.offset.checkpoint.interval.ms": STEP_MS,
    "replica.high.watermark.checkpoint.interval.ms": STEP_MS,
    "log.retention.check.interval.ms": STEP_MS,
    "offsets.retention.check.interval.ms": STEP_MS,
    "leader.imbalance.check.interval.seconds": DAY_MS // 1000,
    "unclean.leader.election.interval.ms": DAY_MS,
    "replica.lag.time.max.ms": 2 * STEP_MS,
    "connections.max.idle.ms": 10 * STEP_MS,
    "broker.heartbeat.interval.ms": STEP_MS,
    "broker.session.timeout.ms": 4 * STEP_MS,
    "odradek.initial.transaction.version": 2,
    "odradek.log.level": "error",
}


class Bank(Client):
    """Client that runs one transaction after another, with the transactional id and the group of the day."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.world, "bank")
        self._identity = (-1, -1)

    async def find_group_coordinator(self) -> None:
        """Wait for the group coordinator. The first request makes the broker create `__consumer_offsets`."""
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=["payments-0"])
        for _ in range(ATTEMPTS_MAX):
            (response,) = (await self.call(request, 4, 1)).coordinators
            if response.error_code == 0:
                return
            await asyncio.sleep(1.0)
        raise TimeoutError("no coordinator of groups")

    async def begin_day(self, day: int) -> None:
        request = InitProducerIdRequest(transactional_id=f"payments-{day}", transaction_timeout_ms=60_000)
        response = await self.call(request, CLIENTS_LAST_VERSION, 1)
        assert response.error_code == 0
        self._identity = (response.producer_id, response.producer_epoch)

    async def transact(self, day: int, number: int) -> None:
        """Commit four offsets in one transaction. One transaction in twenty is aborted."""
        producer_id, epoch = self._identity
        name = f"payments-{day}"
        rows = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=number)
            for index in range(TOPIC_PARTITIONS)
        ]
        offsets = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=-1,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
        )
        response = await self.call(offsets, CLIENTS_LAST_VERSION, 1)
        assert {partition.error_code for topic in response.topics for partition in topic.partitions} == {0}
        end = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=number % 20 != 0
        )
        response = await self.call(end, CLIENTS_LAST_VERSION, 1)
        assert response.error_code == 0
        self._identity = (response.producer_id, response.producer_epoch)

    async def offset_of(self, day: int) -> Any:
        group_request = OffsetFetchRequestGroup(
            group_id=f"payments-{day}", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        )
        response = await self.call(OffsetFetchRequest(groups=[group_request]), 9, 1)
        return response.groups[0].topics[0].partitions[0].committed_offset


class Month:
    """By topic and week: size in bytes and number of segments after each transaction."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.weeks: dict[str, list[list[tuple[int, int]]]] = {topic: [[] for _ in range(5)] for topic, _ in PLACES}
        self.offsets: list[int] = []

    async def run_days(self) -> None:
        run = self.run
        assert await run.cluster.start()
        await run.inspector.create_topic(TOPIC_PARTITIONS)
        await run.inspector.find_coordinators(["payments-0"])
        bank = Bank(run)
        await bank.find_group_coordinator()
        for day in range(DAYS):
            for number in range(TRANSACTIONS_PER_DAY):
                if number == 0:
                    await bank.begin_day(day)
                await bank.transact(day, day * TRANSACTIONS_PER_DAY + number)
                await asyncio.sleep(STEP_MS / 1000)
                self._record_sizes(day // 7)
        self.offsets = [await bank.offset_of(day) for day in (0, DAYS - 2)]
        bank.close()
        run.inspector.close()
        await run.cluster.stop()

    def _record_sizes(self, week: int) -> None:
        node = self.run.cluster.only.node
        assert node is not None
        for place in PLACES:
            partition = node.broker.partitions.get(*place)
            assert partition is not None
            segments = partition.log.segments
            self.weeks[place[0]][week].append((segments.size, len(segments)))


@pytest.mark.timeout(120)
def test_coordinator_logs_after_a_month_are_not_larger_than_after_a_week(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (
        odradek.broker.coordinators.groups,
        odradek.broker.coordinators.transactions,
    ):  # one broker has no standby cache
        monkeypatch.setattr(module, "STANDBY_INTERVAL_MS", STEP_MS)
    monkeypatch.setattr(odradek.broker.partition.background_jobs, "RECOVERY_STARTS_INTERVAL_MS", STEP_MS)
    monkeypatch.setattr(odradek.broker.server.disk_space, "CHECK_INTERVAL_MS", STEP_MS)
    monkeypatch.setattr(odradek.broker.process.expiry_clock, "CHECKPOINT_INTERVAL_MS", STEP_MS)
    options = replace(
        generate_options(1, brokers=1, groups=False), durability=KILL, faults=[], overflow=False, limits={}
    )
    rng = Random(1)
    network = Network(rng, latency=Latency(slow_probability=0.0))
    loop = SimLoop(rng, trace=Trace(), network=network, virtual_seconds_max=(DAYS + 1) * DAY_MS / 1000)
    with logs_into(loop), limited(options.limits):
        asyncio.set_event_loop(loop)
        run = Run(loop, rng, options)
        assignments = [f"{name}={value}" for name, value in SETTINGS.items()]
        run.cluster.only._config = load(environment={}, assignments=assignments)
        run.monitor.compaction.retention_ms = DAY_MS
        month = Month(run)
        try:
            loop.run_until_complete(month.run_days())
        finally:
            asyncio.set_event_loop(None)
            run.abandon()
            loop.close()
    run.monitor.violations += run.monitor.compaction.check_files()
    assert run.partial_findings() == []
    assert month.offsets == [-1, (DAYS - 1) * TRANSACTIONS_PER_DAY - 1], (
        "the oldest group must have expired, the newest must not"
    )
    for place in PLACES:
        written = sum(batch.size for batch in run.monitor.log(place).batches)
        assert written > 8 * SEGMENT_BYTES, "without compaction, the log would have this size"
        first, *later = [[max(column) for column in zip(*week, strict=True)] for week in month.weeks[place[0]]]
        assert first[0] <= 3 * SEGMENT_BYTES
        for size, segments in later:
            assert size <= 3 * SEGMENT_BYTES
            assert segments <= first[1] + 1
