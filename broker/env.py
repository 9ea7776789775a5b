"""Everything that enters a node from outside, besides the event loop and its configuration.

Production builds one in `__main__`; the simulator builds its own over a simulated disk, clock and a seeded generator.
"""

import random
from dataclasses import dataclass

from broker.commit_gate import CommitGateFactory
from runtime.clock import Clock
from storage.disk import Disk


@dataclass(frozen=True)
class Env:
    disk: Disk
    clock: Clock
    rng: random.Random
    """All randomness and all ids of a node come from here."""
    commit_gate: CommitGateFactory
    """How far a partition's high watermark may go (see `broker.commit_gate`)."""
