"""One run of a seed: set-up, workload under faults, healing, final reads, checks."""

import asyncio
import time
import traceback
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import structlog

from odradek.simulation.environment.links import HOSTILE
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.network import Latency, Network
from odradek.simulation.environment.trace import Trace
from tests.sim.checkers.all_checkers import run_checkers
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.checkers.hostile import unexpected_results
from tests.sim.checkers.isolation import TenantEvidence
from tests.sim.cluster.cluster import Cluster
from tests.sim.cluster.late_login import login_of
from tests.sim.cluster.node_config import ROOT
from tests.sim.evidence.convergence import Convergence
from tests.sim.evidence.final_reads import read_everything
from tests.sim.evidence.inspector import Inspector
from tests.sim.evidence.run import Described, collect, count_reached
from tests.sim.faults.epoch_overflow import rewrite_epochs
from tests.sim.faults.fault import CLOCK_KINDS
from tests.sim.faults.injector import FaultInjector
from tests.sim.faults.small_limits import limited
from tests.sim.groups import Groups
from tests.sim.history import END, OK, READ_COMMITTED, READ_UNCOMMITTED, History, Partition
from tests.sim.options.compaction_options import TableOptions
from tests.sim.options.disk_options import DISK_KINDS
from tests.sim.options.run_options import (
    OPERATIONS_MIN,
    OVERFLOW_EPOCH_FIRST,
    OVERFLOW_EPOCH_LAST,
    TRANSACTIONS_MIN,
    Options,
    generate_options,
)
from tests.sim.result import Result
from tests.sim.tenants import Tenants
from tests.sim.watchers.monitor import Monitor
from tests.sim.watchers.producers import removals_counted
from tests.sim.workloads.hostile import HostileClient
from tests.sim.workloads.owners import TRANSACTIONS, Owner
from tests.sim.workloads.producers import CLASSIC, TV2_DIALECT, Dialect, IdempotentProducer, PlainProducer, Producer
from tests.sim.workloads.readers import Poller, Reader
from tests.sim.workloads.session_reader import SessionReader
from tests.sim.workloads.transactions import STEADY, Behavior, TransactionalProducer
from tests.sim.world import TABLE, TOPIC, World
from tests.support import hostile_attack, invariants
from tests.support.pure_decisions import decisions_checked

RESOLVE_SECONDS_MAX: Final = 60.0
WORKLOAD_SECONDS_MAX: Final = 600.0
IDEMPOTENT_BATCHES: Final = 12
PLAIN_BATCHES: Final = 10
COMMIT_ATTEMPTS: Final = 4
OPERATIONS_OF_A_TRANSACTION: Final = 2
TV2: Final = 2
DECISIONS_PER_CHECK: Final = 20
"""One of this many decisions per shard is checked for side effects on the state."""

Producers = dict[Partition, list[SnapshotRow]]


def run_seed(
    seed: int,
    *,
    options: Options | None = None,
    printing: bool = False,
    keep: bool = False,
) -> Result:
    """Run one seed and return its result. Errors of the broker become findings, never exceptions."""
    started = time.monotonic()
    options = options or generate_options(seed)
    rng = Random(seed)
    trace = Trace(printing=printing)
    latency = Latency(seconds_max=options.latency_seconds_max, slow_probability=options.slow_probability)
    loop = SimLoop(rng, trace=trace, network=Network(rng, latency=latency))
    with (
        warnings.catch_warnings(),
        logs_into(loop),
        limited(options.limits),
        decisions_checked(DECISIONS_PER_CHECK),
        invariants.checked() as violations,
        removals_counted() as removals,
    ):
        result = _run(loop, rng, options, started=started, keep=keep)
    result.counters |= removals
    result.findings[:0] = map(str, violations[:5])
    return result


def _run(loop: SimLoop, rng: Random, options: Options, *, started: float, keep: bool) -> Result:
    trace = loop.trace
    run = Run(loop, rng, options)
    findings: list[str]
    try:
        asyncio.set_event_loop(loop)
        findings = loop.run_until_complete(run.main())
    except (Exception, asyncio.CancelledError) as error:
        findings = [
            *run.partial_findings(),
            f"the run ended with {type(error).__name__}: {error}",
            traceback.format_exc(),
        ]
    finally:
        asyncio.set_event_loop(None)
        run.abandon()
        loop.close()
    world = run.world
    return Result(
        seed=options.seed,
        findings=findings,
        digest=trace.digest(),
        counters=dict(world.counters),
        operations=len(world.history.operations),
        transactions=world.transactions_begun,
        faults=len(run.injector.injected),
        virtual_seconds=loop.time(),
        steps=loop.steps,
        wall_seconds=time.monotonic() - started,
        options=options.describe(),
        brokers=options.brokers,
        groups=options.groups is not None,
        compaction=options.compaction is not None,
        table=options.compaction is not None and options.compaction.table is not None,
        hostile=options.hostile is not None,
        security=options.security is not None,
        disk_faults=any(fault.kind in DISK_KINDS for fault in options.faults),
        history=world.history if keep else None,
        trace=trace if keep else None,
    )


@contextmanager
def logs_into(loop: SimLoop) -> Iterator[None]:
    """Add the log events of the nodes to the trace: the event name to the hash, the fields to the printed output."""

    def note(logger: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        loop.trace.add(loop.steps, loop.time(), "log", level, event.get("event"))
        if loop.trace.printing:
            print("   ", {name: value for name, value in event.items() if name != "event"}, flush=True)
        raise structlog.DropEvent

    # A killed process leaves coroutines that never started. Outside the simulation, this warning stays an error.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    before = structlog.get_config()
    structlog.configure(processors=[note], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


class Run:
    """One run and its phases: set-up, workload under faults, healing, final reads, restart, checks."""

    def __init__(self, loop: SimLoop, rng: Random, options: Options) -> None:
        self.loop = loop
        self.rng = rng
        self.options = options
        self.cluster = Cluster(loop, rng, options)
        history = History()
        self.monitor = Monitor(
            ROOT,
            TOPIC,
            self.cluster.commit_delays,
            lambda: history.clock,
            flush=options.flush,
            brokers=options.brokers,
            voters=options.voters,
            min_in_sync=options.min_in_sync,
            elections=True,
            note=lambda line: loop.trace.add(loop.steps, loop.time(), "agreed", line),
        )
        self.cluster.monitor = self.monitor
        self.monitor.is_up = self.cluster.is_up
        loop.network.log_in = login_of(options)
        self.monitor.producers_expire = options.producer_expiration_ms > 0
        self.monitor.future_timestamps = options.batches is not None and options.batches.future > 0
        if options.compaction is not None:
            self.monitor.compaction.retention_ms = options.compaction.retention_ms
        if not any(fault.kind in CLOCK_KINDS for fault in options.faults):
            clocks = {machine.number: machine.clock.wall_ms for machine in self.cluster.machines}
            self.monitor.compaction.clocks = clocks
        self.world = World(options, loop, rng, history, self.cluster, self.monitor)
        self.injector = FaultInjector(self.world)
        self.convergence = Convergence(self.world)
        self.loop.step_hook_at = 1 << 60
        self.inspector = Inspector(self.world, "inspector")
        self.groups = Groups(self.world)
        self.tenant_evidence = TenantEvidence()
        self.tenants = Tenants(self.world, self.tenant_evidence)
        self.producers: list[tuple[IdempotentProducer | PlainProducer | TransactionalProducer, int]] = []
        self.session_reader = SessionReader(self.world, "session", self.rng.choice((READ_COMMITTED, READ_UNCOMMITTED)))
        self.hostile = None if options.hostile is None else HostileClient(self.world, options.hostile, self._end)
        self._main: asyncio.Task[Any] | None = None
        self.findings: list[str] = []

    # ---- phases -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End the run early: it has its finding, and what follows explains nothing."""
        if self._main is not None:
            self._main.cancel("a broker carried out a request that it must refuse")

    async def main(self) -> list[str]:
        self._main = asyncio.current_task()
        self._create_producers()
        await self._set_up()
        self.loop.step_hook_at = 0
        await self._work()
        await self._heal()
        self.findings += await read_everything(self.world, self.session_reader)
        described = await self._restart_and_describe()
        self.findings += await self.convergence.equal_ends(1.0 if self.findings else RESOLVE_SECONDS_MAX)
        await self.cluster.stop()
        return self.findings + self._check(*described)

    def _create_producers(self) -> None:
        options = self.options
        # Clients use TV2 only if the cluster has finalized it.
        tv2_dialect = self._tv2_dialect
        behavior = Behavior(overtime=options.overtime)
        zombie_behavior = Behavior(
            overtime=options.overtime, pause=0.2, pause_seconds=options.transaction_timeout_ms / 1000
        )
        transactional: list[TransactionalProducer] = [
            TransactionalProducer(self.world, f"modern-{number}", tv2_dialect, f"modern-{number}", behavior)
            for number in range(options.tv2_producers)
        ]
        transactional += [
            TransactionalProducer(
                self.world, f"classic-{number}", self.rng.choice(CLASSIC), f"classic-{number}", behavior
            )
            for number in range(options.classic_producers)
        ]
        for pair in range(options.zombie_pairs):
            dialects = self.rng.choice(
                ((tv2_dialect, tv2_dialect), (CLASSIC[0], CLASSIC[0]), (tv2_dialect, CLASSIC[0]))
            )
            transactional += [
                TransactionalProducer(self.world, f"zombie-{pair}-{number}", dialect, f"zombie-{pair}", zombie_behavior)
                for number, dialect in enumerate(dialects)
            ]
        owners = [Owner(self.world, f"owner-{number}") for number in range(options.owners)]
        per_producer = -(-options.transactions // len(transactional))
        self.producers += [(producer, per_producer) for producer in transactional]
        self.producers += [(owner, TRANSACTIONS) for owner in owners]
        self.producers += [(producer, per_producer) for producer in self.tenants.producers(tv2_dialect)]
        self.producers += [
            (IdempotentProducer(self.world, f"idempotent-{number}", tv2_dialect), IDEMPOTENT_BATCHES)
            for number in range(options.idempotent)
        ]
        self.producers.append((PlainProducer(self.world, "plain", tv2_dialect), PLAIN_BATCHES))

    @property
    def _table(self) -> TableOptions | None:
        return None if self.options.compaction is None else self.options.compaction.table

    @property
    def _tv2_dialect(self) -> Dialect:
        return TV2_DIALECT if self.options.transaction_version >= TV2 else CLASSIC[0]

    @property
    def transactional_ids(self) -> list[str]:
        ids = [producer.transactional_id for producer, _ in self.producers if producer.transactional_id is not None]
        return [*dict.fromkeys(ids), "after-modern", "after-classic"]

    async def _set_up(self) -> None:
        assert await self.cluster.start(), "the first start failed"
        await self.inspector.create_topic(self.options.partitions)
        if self._table is not None:
            await self.inspector.create_topic(1, name=TABLE, configs=self._table.configs)
        await self.tenants.set_up(self.inspector)
        if self.hostile is not None:
            await self.inspector.create_topic(1, name=hostile_attack.TOPIC)
            compacted = {"cleanup.policy": "compact"}
            await self.inspector.create_topic(1, name=hostile_attack.COMPACTED_TOPIC, configs=compacted)
        await self.inspector.find_coordinators(self.transactional_ids)
        await self.groups.set_up(self.inspector)
        if not self.options.overflow:
            return
        chosen = [
            transactional_id for transactional_id in self.transactional_ids[:-2] if self.rng.random() < 0.7
        ] or self.transactional_ids[:1]
        for transactional_id in chosen:
            producer = Producer(self.world, f"elder-{transactional_id}", self._tv2_dialect, transactional_id)
            producer.timeout_ms = self.options.transaction_timeout_ms
            await producer.initialize()
            producer.close()
        await self.cluster.stop()
        # The rewritten log contradicts the responses to these producers, so their operations leave the history.
        self.world.history.operations.clear()
        epochs = {
            transactional_id: self.rng.randint(OVERFLOW_EPOCH_FIRST, OVERFLOW_EPOCH_LAST) for transactional_id in chosen
        }
        medium = self.cluster.only.medium
        assert rewrite_epochs(medium, ROOT, epochs) >= len(chosen)
        self.monitor.reload(1, medium)
        await self.cluster.start()

    async def _work(self) -> None:
        world, loop = self.world, self.loop
        helpers: list[Reader | SessionReader | Poller] = [
            *([self.session_reader] if self.options.brokers == 1 else []),
            Reader(world, "committed", READ_COMMITTED),
            Reader(world, "dirty", READ_UNCOMMITTED),
            Poller(world, "poller"),
        ]
        background = [loop.spawn(f"c:{helper.name}", helper.run(), helper.name) for helper in helpers]
        if self.hostile is not None:
            background.append(loop.spawn(HOSTILE, self.hostile.run(), "hostile client"))
        background += self.tenants.start()
        workers = [
            loop.spawn(f"c:{producer.name}", producer.run(count), producer.name) for producer, count in self.producers
        ]
        self.groups.start([self._tv2_dialect, CLASSIC[0]])
        deadline = loop.time() + WORKLOAD_SECONDS_MAX
        for worker in workers:
            try:
                await asyncio.wait_for(worker, max(0.0, deadline - loop.time()))
            except TimeoutError:
                self.findings.append(f"L1 {worker.get_name()} does not complete within {WORKLOAD_SECONDS_MAX:.0f} s")
        await self._run_missing_transactions()
        await self.groups.wait_for_transactions()
        world.stopping = True
        for task in background:
            await asyncio.wait_for(task, 60.0)

    async def _run_missing_transactions(self) -> None:
        """Run the missing transactions with one more producer.

        Transactions are missing if a power cut without flushing left a transactional id that never completes, or if all
        transactions were short.
        """
        operations = OPERATIONS_MIN - len(self.world.history.operations)
        missing = max(TRANSACTIONS_MIN - self.world.transactions_begun, operations // OPERATIONS_OF_A_TRANSACTION)
        if missing > 0 and self.options.brokers == 1:
            extra = TransactionalProducer(self.world, "spare", self._tv2_dialect, "spare", Behavior())
            self.producers.append((extra, missing))
            await extra.run(missing)

    async def _heal(self) -> None:
        """L1: after the faults, every open transaction is resolved, and new transactions commit."""
        self.injector.stop()
        self.groups.set_calm()
        await self.cluster.wait_up(RESOLVE_SECONDS_MAX)
        await self._in_sync()
        await self._resolve()
        for dialect, name in ((self._tv2_dialect, "after-modern"), (CLASSIC[0], "after-classic")):
            if not await self._commits(dialect, name):
                self.findings.append(f"L1 a new transaction of {name} does not commit after healing")
        self.findings += await self.groups.drain()
        await self._resolve()
        await self.groups.fetch_final_offsets(self.inspector)

    async def _commits(self, dialect: Dialect, name: str) -> bool:
        """Return True if a new transaction commits.

        With several brokers, the first attempts may spend the transaction time-out on a removed broker.
        """
        producer = TransactionalProducer(self.world, name, dialect, name, STEADY)
        for _ in range(1 if self.options.brokers == 1 else COMMIT_ATTEMPTS):
            await producer.run(1)
            last = [operation for operation in self.world.history.of(END) if operation.process == name]
            if last and last[-1].outcome == OK:
                return True
        return False

    async def _in_sync(self) -> None:
        """Wait until all partitions are in sync; wait briefly if the run already has findings."""
        self.findings += await self.convergence.in_sync(1.0 if self.findings else RESOLVE_SECONDS_MAX)

    async def _resolve(self) -> None:
        # Time-outs are persisted in wall-clock time. A backward clock step delays the time-out of earlier transactions.
        patience = RESOLVE_SECONDS_MAX + sum(
            max(0, -fault.number, -fault.seconds * 1000) / 1000
            for fault in self.injector.injected
            if fault.kind in CLOCK_KINDS
        )
        deadline = self.loop.time() + patience
        while self.loop.time() < deadline and self._unresolved():
            await asyncio.sleep(0.5)
        for transaction in self._unresolved():
            self.findings.append(f"L1 {transaction} is not resolved {patience:.0f} s after the last fault")

    def _unresolved(self) -> list[str]:
        return [
            f"{entry.transactional_id} (state {entry.state})"
            for model in self.monitor.coordinators.values()
            for entry in model.latest.values()
            if entry.state in {1, 2, 3}
        ]

    async def _restart_and_describe(self) -> tuple[Producers, dict[str, tuple[str, int, int]]]:
        self.inspector.close()
        if self.rng.random() < 0.5:
            await self.cluster.stop()
            await self.cluster.start()
        else:
            power = self.rng.random() < 0.5
            for machine in self.cluster.remaining:
                machine.crash(power=power and self.cluster.may_lose_data(machine), downtime=0.1)
            await self.cluster.wait_up(RESOLVE_SECONDS_MAX)
            await self._in_sync()
        producers = await self.inspector.describe_producers(self.world.written)
        transactions = await self.inspector.describe_transactions(self.transactional_ids)
        await self.groups.fetch_final_offsets(self.inspector)
        self.inspector.close()
        if not self.options.lossy:
            self.findings += await read_everything(self.world, self.session_reader)
        return producers, transactions

    # findings

    def partial_findings(self) -> list[str]:
        """Return the findings of a run that ended with an exception."""
        hostile = [] if self.hostile is None else self.hostile.requests
        return [
            *unexpected_results(hostile),
            *self.tenants.findings(),
            *self.findings,
            *self.monitor.violations[:20],
            *self.cluster.violations,
            *self.cluster.unexpected_failures()[:5],
        ]

    def _check(self, producers: Producers, transactions: dict[str, tuple[str, int, int]]) -> list[str]:
        # In a lossy run, the brokers may still change their state after the restart. Only the state right after a start
        # counts.
        described = Described({}, {}) if self.options.lossy else Described(producers, transactions)
        evidence = collect(
            self.world, self.injector, described, self.findings, self.convergence.ends, self.groups.final
        )
        evidence.acls, evidence.tenants = self.tenants.evidence()
        evidence.tokens = self.tenants.token_evidence()
        evidence.hostile = [] if self.hostile is None else self.hostile.requests
        findings = run_checkers(evidence)
        count_reached(self.world, evidence)
        if self.options.lossy:
            # Outside the guarantee: the node has to start, to serve, and to have the state of its files.
            self.findings.clear()
            return [*self.cluster.violations, *findings, *self.cluster.unexpected_failures()[:5]]
        return [
            *self.monitor.violations[:20],
            *self.cluster.violations,
            *findings,
            *self.cluster.unexpected_failures()[:5],
        ]

    def abandon(self) -> None:
        """Cancel all tasks, so that no warnings follow when the loop is garbage-collected."""
        for node in list(self.loop._tasks):
            for task in self.loop.tasks_of(node):
                task.cancel()
        try:
            self.loop.step_hook_at = 1 << 60
            self.loop.call_later(0.5, self.loop.stop)
            self.loop.run_forever()
        except Exception:
            self.findings.append("the loop does not stop")
