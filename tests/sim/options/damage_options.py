"""Damage of log segments, in part of the runs with several brokers, from a generator of its own."""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import COORDINATOR, LEADER, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

DAMAGE: Final = "damage"
EVERY_BROKER: Final = "all"
"""Value of `Fault.other`: the processes of all brokers are killed at the same time."""
PROBABILITY: Final = 0.3
FAULTS_MAX: Final = 2


def generate_damage(options: "Options", *, wanted: bool | None = None) -> None:
    """Add damage of logs to part of the runs with several brokers; to all of them if `wanted`."""
    rng = Random(options.seed * 86_028_121 + 29)
    damaged = rng.random() < PROBABILITY if wanted is None else wanted
    if options.brokers == 1 or not damaged:
        return
    last = max((fault.operations for fault in options.faults), default=200)
    faults = [
        Fault(
            DAMAGE,
            rng.randrange(20, max(21, last)),
            rng.randrange(500),
            seconds=rng.random() * rng.choice((0.1, 1.0)),
            target=rng.choice((LEADER, LEADER, COORDINATOR)),
            number=rng.randrange(64),
            other=rng.choice((EVERY_BROKER, "")),
        )
        for _ in range(rng.randint(1, FAULTS_MAX))
    ]
    options.faults = in_order([*options.faults, *faults])
