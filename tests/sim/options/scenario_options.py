"""Scenarios: faults in an order that depends on the state of the cluster, which faults at fixed steps hit too rarely.

The run has no other faults. They would change the leaders or the controller in most runs.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import ANY, Fault

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

LATE_JOIN: Final = "late_join"
"""The request that adds a follower to the ISR reaches the controller after the follower has lost records."""
VOTER_FAILURE: Final = "voter_failure"
"""A voter of the metadata log fails right after its vote, and another voter requests its vote in the same epoch."""
SCENARIOS: Final = (LATE_JOIN, VOTER_FAILURE)
SESSION_TIMEOUT_MS: Final = 800
REPLICA_LAG_MS: Final = 600
TRANSACTIONS: Final = 60
"""Transactions of the run, so that the workload lasts longer than the scenario."""
THINK_SECONDS: Final = 0.4


def generate_scenario(options: "Options", kind: str) -> None:
    """Replace the faults of a run with several brokers by a scenario."""
    assert kind in SCENARIOS
    rng = Random(options.seed * 86_028_157 + 37)
    options.session_timeout_ms, options.replica_lag_ms = SESSION_TIMEOUT_MS, REPLICA_LAG_MS
    options.replication, options.leave_behind = 3, ""
    options.transactions, options.think_seconds = TRANSACTIONS, THINK_SECONDS
    options.faults = [Fault(kind, rng.randrange(20, 60), rng.randrange(500), target=ANY, number=rng.randrange(64))]
