"""An outage: the processes of all brokers end at the same time, and one machine loses power.

That machine starts first, with a log that lacks records of its partitions.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import COORDINATOR, LEADER, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

OUTAGE: Final = "outage"


def generate_outages(options: "Options") -> None:
    """Add an outage to a run with several brokers."""
    rng = Random(options.seed * 86_028_157 + 31)
    last = max((fault.operations for fault in options.faults), default=200)
    outage = Fault(
        OUTAGE,
        rng.randrange(20, max(21, last)),
        rng.randrange(500),
        seconds=rng.random() * rng.choice((0.1, 1.0)),
        target=rng.choice((LEADER, LEADER, COORDINATOR)),
        number=rng.randrange(64),
    )
    options.faults = in_order([*options.faults, outage])
