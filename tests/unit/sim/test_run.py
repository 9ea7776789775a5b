"""A whole run: recovery, fault model and liveness checks do not depend on chance."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from errno import EMFILE
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.simulation.environment.disk import ENOSPC, DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from tests.sim.checkers.batches import read_batches
from tests.sim.cluster.cluster import Cluster
from tests.sim.cluster.node_config import ROOT, WATERMARKS
from tests.sim.evidence.run import add_snapshots, committed_on
from tests.sim.faults.small_limits import limited
from tests.sim.groups import GroupRunner
from tests.sim.options.cluster_options import ONE_LOSES
from tests.sim.options.group_options import CLASSIC as CLASSIC_GROUP
from tests.sim.options.group_options import CONSUMER as CONSUMER_GROUP
from tests.sim.options.group_options import COPIER, GroupPlan
from tests.sim.options.run_options import KILL, generate_options
from tests.sim.run import Run, logs_into, run_seed
from tests.sim.workloads.copiers import ENDED, FENCED, Copier
from tests.sim.workloads.encode import encode_batch
from tests.sim.workloads.producers import CLASSIC as CLASSIC_DIALECTS
from tests.sim.workloads.producers import TV2_DIALECT, Dialect, PlainProducer
from tests.support.effort import effort

COPY_SECONDS_MAX = 20.0
"""Virtual seconds in which one copier reads and copies all records of the scenario; it needs about 5."""


def test_healed_cluster_commits_although_one_broker_stays_isolated() -> None:
    """One of three brokers stays isolated.

    A connection attempt to it takes longer than the transaction time-out of the run.
    """
    for seed in range(1000, 1000 + effort(2)):
        options = replace(
            generate_options(seed, brokers=3),
            faults=[],
            leave_behind="cut",
            replication=3,
            transactions=1,
            transaction_timeout_ms=1000,
        )
        assert run_seed(seed, options=options).findings == [], seed


def test_removed_broker_is_not_started_by_a_pending_restart() -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only

    async def crash_permanently() -> None:
        await cluster.start()
        machine.restart(downtime=1.0)
        await asyncio.sleep(0.9)
        assert not machine.alive
        machine.gone = True
        machine.crash(power=False, downtime=0.0)
        await asyncio.sleep(5.0)

    with logs_into(loop):
        loop.run_until_complete(crash_permanently())
    assert (machine.incarnations, machine.alive) == (1, False)
    loop.close()


def test_checkpoint_from_before_power_loss_is_bounded_by_the_log() -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=3), faults=[]))
    machine, place = cluster.machine(2), ("ledger", 0)
    disk = SimDisk(machine.medium, loop, Random(1), name="before", latency=DiskLatency())
    disk.make_directory(ROOT)
    batches = list(read_batches(encode_batch([(None, b"a")], timestamp=1)))
    assert committed_on(machine, place, batches) == 0
    disk.replace_file_now(WATERMARKS, b"0\n1\nledger 0 95\n")
    assert committed_on(machine, place, batches) == 95
    machine.medium.lose_power(Random(1))
    cluster.lost_data(machine)
    assert committed_on(machine, place, batches) == 1
    disk.replace_file_now(WATERMARKS, b"0\n1\nledger 0 2\n")
    assert committed_on(machine, place, batches) == 2
    loop.close()


@pytest.mark.parametrize("write_fails", [True, False])
def test_disk_is_read_again_after_a_failed_write(monkeypatch: pytest.MonkeyPatch, *, write_fails: bool) -> None:
    """A failed write may leave a complete batch on the disk. The monitor reads the disk again even without a crash."""
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only
    read_again: list[object] = []
    monkeypatch.setattr(cluster, "comes_back", read_again.append)

    async def restart() -> None:
        await cluster.start()
        if write_fails:
            machine.disk_fault(DiskFault("write", "t-0", 5), restart_after=100.0)
            assert machine.disk is not None
            with pytest.raises(OSError, match="simulated"):
                machine.disk.fault("write", "t-0/0.log")
        machine.restart(downtime=0.1)
        await asyncio.sleep(5.0)
        assert (machine.incarnations, machine.alive) == (2, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert read_again == [machine] * write_fails
    loop.close()


@pytest.mark.parametrize("lasts", [True, False])
def test_lasting_disk_fault_fails_the_next_start(*, lasts: bool) -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine, fault = cluster.only, DiskFault("write", "meta.properties", 5)

    async def restart() -> None:
        await cluster.start()
        machine.disk_fault(fault, restart_after=100.0, lasts=lasts)
        machine.restart(downtime=0.1)
        await asyncio.sleep(5.0)
        assert (fault.injected, machine.incarnations, machine.alive) == (lasts, 2 + lasts, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert not cluster.violations
    loop.close()


def test_failed_sync_during_restart_leads_to_a_machine_restart() -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only

    async def restart() -> None:
        await cluster.start()
        machine.restart(downtime=0.1)
        machine.disk_fault(DiskFault("sync", ".log", 5), restart_after=100.0)
        await asyncio.sleep(5.0)
        assert (machine.incarnations, machine.alive, machine.boots) == (2, True, 2)
        assert not machine.cache_is_stale
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert cluster.counters["un-synced data lost"] == 1
    loop.close()


@pytest.mark.parametrize("fault", [("write", "", ENOSPC), ("open", "odradek.boot", EMFILE)])
def test_start_that_finds_no_resources_is_repeated(
    fault: tuple[str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only
    make_disk = machine._make_disk

    def make_full_disk(name: str) -> SimDisk:
        disk = make_disk(name)
        if machine.incarnations == 2:
            disk.faults.append(DiskFault(*fault))
        return disk

    async def restart() -> None:
        await cluster.start()
        monkeypatch.setattr(machine, "_make_disk", make_full_disk)
        machine.restart(downtime=0.1)
        await asyncio.sleep(30.0)
        assert (machine.incarnations, machine.alive) == (3, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert cluster.violations == []
    assert cluster.counters["start refused"] == 1
    loop.close()


def test_second_stop_of_a_node_has_no_effect() -> None:
    """A second SIGTERM has no effect, as with a real broker."""
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only

    async def restart() -> None:
        await cluster.start()
        machine.restart(downtime=0.1)
        machine.restart(downtime=0.2)
        await asyncio.sleep(5.0)
        assert (machine.incarnations, machine.alive) == (2, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert cluster.violations == []
    loop.close()


@pytest.mark.parametrize("gone", [True, False])
def test_invalid_snapshot_is_reported_unless_the_machine_was_removed(*, gone: bool) -> None:
    """A crashed node may leave a snapshot with a flipped bit, which it would write again at its next start."""
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=3), faults=[]))
    machine, place = cluster.machine(1), ("ledger", 0)
    machine.gone = gone
    disk = SimDisk(machine.medium, loop, Random(1), name="before", latency=DiskLatency())
    disk.make_directory(f"{ROOT}/ledger-0")
    disk.replace_file_now(f"{ROOT}/ledger-0/{27:020d}.snapshot", b"?")
    monitor = SimpleNamespace(authoritative_host=lambda _: 1, surviving_batches=lambda _: [])
    world: Any = SimpleNamespace(written=[place], cluster=cluster, monitor=monitor)
    evidence: Any = SimpleNamespace(snapshots={}, snapshot_models={})
    findings: list[str] = []
    add_snapshots(world, evidence, findings)
    assert len(findings) == (not gone)
    loop.close()


def test_only_the_suspect_machine_may_stay_away() -> None:
    loop = SimLoop(Random(1))
    options = next(
        candidate for seed in range(100) if (candidate := generate_options(seed, brokers=3)).durability == ONE_LOSES
    )
    cluster = Cluster(loop, Random(1), options)
    cluster.monitor = Run(loop, Random(1), options).monitor
    assert all(cluster.may_stay_away(machine) for machine in cluster.machines)
    cluster.lost_data(cluster.machine(2))
    assert [machine.number for machine in cluster.machines if cluster.may_stay_away(machine)] == [2]
    cluster.machine(2).up.set()  # it has no partitions
    assert all(cluster.may_stay_away(machine) for machine in cluster.machines)
    loop.close()


def test_no_broker_may_lose_data_while_another_has_a_failed_disk() -> None:
    loop = SimLoop(Random(1))
    options = next(
        candidate for seed in range(100) if (candidate := generate_options(seed, brokers=3)).durability == ONE_LOSES
    )
    cluster = Cluster(loop, Random(1), options)
    cluster.monitor = Run(loop, Random(1), options).monitor
    failed, other = cluster.machine(1), cluster.machine(2)

    async def fail_disk() -> None:
        await cluster.start()
        failed.disk_fault(DiskFault("write", "/t-", 5), restart_after=100.0)
        assert cluster.may_lose_data(other), "the fault was not injected yet"
        assert failed.disk is not None
        with pytest.raises(OSError, match="simulated"):
            failed.disk.fault("write", "/t-0/0.log")
        assert not cluster.may_lose_data(other), "the ISR still contains the broker"
        assert cluster.may_lose_data(failed)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(fail_disk())
    loop.close()


@pytest.mark.parametrize("lost", [True, False])
def test_no_disk_operation_fails_while_another_broker_is_suspect(*, lost: bool) -> None:
    """A pending disk fault is dropped, too, if another broker loses data first: no intact replica might remain."""
    loop = SimLoop(Random(1))
    options = next(
        candidate for seed in range(100) if (candidate := generate_options(seed, brokers=3)).durability == ONE_LOSES
    )
    cluster = Cluster(loop, Random(1), options)
    cluster.monitor = Run(loop, Random(1), options).monitor
    machine = cluster.machine(1)

    async def fail_disk() -> None:
        await cluster.start()
        machine.disk_fault(DiskFault("write", "/t-", 5), restart_after=100.0)
        if lost:
            cluster.machine(2).crash(power=True, downtime=1.0)
        assert machine.disk is not None
        with nullcontext() if lost else pytest.raises(OSError, match="simulated"):
            machine.disk.fault("write", "/t-0/0.log")
        assert machine.disk_failed is not lost
        await cluster.wait_up(5.0)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(fail_disk())
    loop.close()


@pytest.mark.parametrize("protocol", [CLASSIC_GROUP, CONSUMER_GROUP])
@pytest.mark.parametrize("dialect", [TV2_DIALECT, CLASSIC_DIALECTS[0]], ids=["TV2", "TV1"])
def test_two_copiers_with_one_transactional_id_do_not_fence_each_other_after_healing(
    protocol: str, dialect: Dialect
) -> None:
    """Two copiers share a transactional id when the faults stop. One of them ends, and the group reads all records.

    A fenced copier that owns no partition ends without a request that receives PRODUCER_FENCED. At least one of the
    seeds must let the fenced copier send one.

    1. Copier A calls InitProducerId, then copier B does. The coordinator fences A.
    2. A receives PRODUCER_FENCED. If A calls InitProducerId again, the coordinator fences B.
    3. With two copiers that never end, step 2 repeats and most of their transactions abort.
    """
    options = replace(
        generate_options(1, brokers=1, groups=True), durability=KILL, faults=[], overflow=False, limits={}
    )
    assert options.groups is not None
    plan = GroupPlan("copy", COPIER, protocol, members=1, static=0)
    groups = replace(options.groups, plans=(plan,), alone="", size_max=0, think_seconds=0.1, own_ids=1.0)

    async def heal(run: Run) -> tuple[list[str], list[str | None]]:
        await run._set_up()
        writer = PlainProducer(run.world, "writer", TV2_DIALECT)
        await writer.run(60)
        run.groups.set_calm()
        runner = GroupRunner(run.world, plan, [dialect])
        copiers = [runner._process(0, incarnation) for incarnation in range(2)]
        assert {copier.transactional_id for copier in copiers if isinstance(copier, Copier)} == {"copy/0"}
        run.groups._tasks += [
            run.loop.spawn(f"c:{copier.name}", copier.run_member(), copier.name) for copier in copiers
        ]
        findings = await run.groups.drain(COPY_SECONDS_MAX)
        ended = [task.result() for task in run.groups._tasks]
        run.inspector.close()
        await run.cluster.stop()
        return findings, ended

    def heal_with(seed: int) -> list[str]:
        loop = SimLoop(Random(seed))
        with logs_into(loop), limited(options.limits):
            asyncio.set_event_loop(loop)
            run = Run(loop, Random(seed), replace(options, groups=groups))
            try:
                findings, ended = loop.run_until_complete(heal(run))
            finally:
                asyncio.set_event_loop(None)
                run.abandon()
                loop.close()
        assert findings == []
        return sorted(map(str, ended))

    outcomes = [heal_with(seed) for seed in range(1, 4)]
    assert all(ENDED in outcome for outcome in outcomes)
    assert [ENDED, FENCED] in outcomes
