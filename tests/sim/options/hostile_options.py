"""Options of the hostile client of a run."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from tests.support.hostile_attack import KINDS, SHARED_LISTENER_KINDS

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

PROBABILITY: Final = 0.3
"""Share of the seeds with a hostile client."""
SHARED_LISTENER_PROBABILITY: Final = 0.2
"""Share of these seeds with several brokers in which clients and brokers share a listener."""
KINDS_MIN: Final = 8
"""Minimum number of kinds of attacks of a run, of which some are omitted (swarm testing)."""


@dataclass
class HostileOptions:
    """Attacks of one run."""

    kinds: tuple[str, ...]
    think_seconds: float
    """Mean time between two attacks."""
    creates_topics: bool
    """True if the brokers create unknown topics that a Metadata request names."""
    shared_listener: bool = False
    """True if clients and brokers share one listener without authentication."""

    def describe(self) -> str:
        if self.shared_listener:
            return "a hostile client on the listener of the brokers"
        left_out = [kind for kind in KINDS if kind not in self.kinds]
        without = f" without {', '.join(left_out)}" if left_out else ""
        return f"a hostile client{without}"


def generate_hostile(options: "Options", *, wanted: bool | None = None, shared: bool | None = None) -> None:
    """Add a hostile client to part of the runs. It uses a generator of its own.

    `shared` fixes whether clients and brokers share a listener in a run with several brokers.
    """
    rng = Random(options.seed * 67_867_967 + 23)
    sampled = rng.random() < PROBABILITY
    if not (sampled if wanted is None else wanted):
        return
    if options.brokers > 1 and (rng.random() < SHARED_LISTENER_PROBABILITY if shared is None else shared):
        options.hostile = HostileOptions(SHARED_LISTENER_KINDS, rng.choice((0.02, 0.05)), False, True)
        return
    kinds = KINDS if rng.random() < 0.5 else rng.sample(KINDS, rng.randint(KINDS_MIN, len(KINDS)))
    options.hostile = HostileOptions(
        kinds=tuple(kind for kind in KINDS if kind in kinds),
        think_seconds=rng.choice((0.01, 0.03, 0.1)),
        creates_topics=rng.random() < 0.5,
    )
