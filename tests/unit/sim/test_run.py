"""A run judges the cluster, not the luck of its own clients."""

from dataclasses import replace

from tests.sim.options import draw
from tests.sim.run import run_seed


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
