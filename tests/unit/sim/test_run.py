"""A run judges the cluster, not the luck of its own clients."""

import asyncio
from dataclasses import replace
from random import Random

from tests.sim.cluster import Cluster
from tests.sim.loop import SimLoop
from tests.sim.options import draw
from tests.sim.run import logs_into, run_seed


def test_who_shows_that_a_healed_cluster_commits_is_not_beaten_by_its_own_time_out() -> None:
    """One of three brokers stays cut off, and asking it costs a client more than the transactions of this run may last."""
    for seed in range(1000, 1008):
        options = replace(
            draw(seed, brokers=3),
            faults=[],
            leave_behind="cut",
            replication=3,
            transactions=1,
            transaction_timeout_ms=1000,
        )
        assert run_seed(seed, options=options).findings == [], seed


def test_a_broker_that_is_left_dead_does_not_come_back_from_a_restart_that_was_on_its_way() -> None:
    loop = SimLoop(Random(1))
    cluster = Cluster(loop, Random(1), replace(draw(1, brokers=1), faults=[]))
    machine = cluster.only

    async def leave_behind() -> None:
        await cluster.start()
        machine.restart(downtime=1.0)
        await asyncio.sleep(0.9)
        assert not machine.alive
        machine.gone = True
        machine.crash(power=False, downtime=0.0)
        await asyncio.sleep(5.0)

    with logs_into(loop):
        loop.run_until_complete(leave_behind())
    assert (machine.lives, machine.alive) == (1, False)
    loop.close()
