"""Failed reads of files that a broker reads when it starts: it does not start, as Apache Kafka does not."""

import asyncio
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest

from odradek.broker.partition.partition import Role
from odradek.simulation.environment.disk import EIO, ENOSPC, READ, DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.disk.port import ResourcesExhausted
from tests.sim.cluster.cluster import Cluster
from tests.sim.options.disk_options import error_event
from tests.sim.options.read_options import READ_FILES, READ_KINDS
from tests.sim.options.run_options import generate_options
from tests.sim.run import logs_into

ENDS_THE_START = (
    "meta.properties", "quorum-state", "-offset-checkpoint", "leader-epoch-checkpoint", "partition.metadata",
    ".snapshot", ".index", ".timeindex", ".kafka_cleanshutdown", "odradek.expiry",
)  # fmt: skip
"""A part of the name of each file that a broker reads after a clean stop without topics, except `odradek.boot`."""


def test_broker_that_cannot_read_a_file_of_its_directory_does_not_start() -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only

    async def restart() -> None:
        await cluster.start()
        for count, name in enumerate(ENDS_THE_START, 1):
            machine.read_error(name, downtime=0.1, clean=True)
            await asyncio.sleep(5.0)
            assert (machine.incarnations, machine.alive) == (1 + 2 * count, True), name
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert cluster.violations == []
    assert cluster.counters["start refused"] == cluster.counters[error_event(READ, EIO)] == len(ENDS_THE_START)
    loop.close()


def test_broker_that_is_killed_while_it_stops_after_a_failed_start_starts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine, count = cluster.only, cluster.count

    def kill_if_refused(name: str) -> None:
        count(name)
        if name == "start refused":
            operator = loop.context_of("operator")
            loop.call_soon(partial(machine.crash, power=False, downtime=1.0), context=operator)

    monkeypatch.setattr(cluster, "count", kill_if_refused)

    async def restart() -> None:
        await cluster.start()
        machine.read_error("meta.properties", downtime=0.1, clean=True)
        await asyncio.sleep(5.0)
        assert (machine.incarnations, machine.alive) == (3, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(restart())
    assert cluster.violations == []
    assert cluster.counters["start refused"] == 1
    loop.close()


@pytest.mark.parametrize(("role", "incarnations"), [(Role.OFFLINE, 2), (Role.LEADER, 1), (None, 1)])
def test_broker_is_restarted_if_a_full_disk_takes_a_partition_offline(role: Role | None, incarnations: int) -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(generate_options(1, brokers=1), faults=[]))
    machine = cluster.only

    async def fill() -> None:
        await cluster.start()
        node, disk = machine.node, machine.disk
        assert node is not None
        assert disk is not None
        broker = node.broker
        machine.disk_fault(DiskFault("write", ".snapshot", ENOSPC), restart_after=1.0)
        with pytest.raises(ResourcesExhausted):
            disk.fault("write", "/data/ledger-0/0.snapshot")
        with pytest.MonkeyPatch.context() as patch:
            if role is None:
                patch.delattr(node, "broker")  # as before the node hosts partitions
            else:
                patch.setattr(node, "broker", SimpleNamespace(partitions=[SimpleNamespace(role=role)]))
            await asyncio.sleep(1.1)
        assert node.broker is broker
        await asyncio.sleep(5.0)
        assert loop.failures == []
        assert (machine.incarnations, machine.alive) == (incarnations, True)
        await cluster.stop()

    with logs_into(loop):
        loop.run_until_complete(fill())
    assert cluster.violations == []
    loop.close()


def test_failed_read_of_a_file_is_injected_once() -> None:
    loop = SimLoop(Random(1))
    disk = SimDisk(Medium(), loop, Random(1), name="n", latency=DiskLatency())
    disk.make_directory("/data")
    file = disk.open("/data/a", create=True)
    file.write(0, b"written")

    def read_file() -> bytes:
        return bytes(disk.read_file("/data/a"))

    def read() -> bytes:
        return bytes(file.read(0, 7))

    async def cold() -> bytes:
        return bytes(await file.read_cold(0, 7))

    def read_cold() -> bytes:
        return loop.run_until_complete(cold())

    for work in (read_file, read, read_cold):
        disk.faults.append(DiskFault(READ, "/a", EIO))
        with pytest.raises(OSError, match="simulated"):
            work()
        assert work() == b"written"
    loop.close()


def test_each_file_is_generated_and_ordinary_runs_have_no_failed_reads() -> None:
    numbers: dict[int, None] = {}
    for seed in range(60):
        faults = generate_options(seed, read_errors=READ_FILES).faults
        numbers.update(dict.fromkeys(fault.number for fault in faults if fault.kind in READ_KINDS))
        assert not {fault.kind for fault in generate_options(seed).faults} & set(READ_KINDS)
    assert len(numbers) == len(READ_FILES)
