"""The product's named limits, drawn small for some runs: what a long life or a large cluster would reach, a short run reaches too.

They are set as the module attributes that they are, and put back when the run is over; the product has no switch for it.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import odradek.broker.partition.waiters
import odradek.coordinator.txn.markers
import odradek.coordinator.txn.service
import odradek.storage.segment.segment
import odradek.storage.segment.segments
from odradek.runtime.shard import EngineLimits

OWNERS: Final[Mapping[str, Any]] = {
    "SEALED_INDEXES_LOADED_MAX": odradek.storage.segment.segments,
    "GROWTH_ENTRIES_MAX": odradek.broker.partition.waiters,
    "MARKERS_PER_REQUEST_MAX": odradek.coordinator.txn.markers,
    "RECENT_BYTES_MAX": odradek.storage.segment.segment,
}
CHOICES: Final[Mapping[str, tuple[int, ...]]] = {
    "SEALED_INDEXES_LOADED_MAX": (1, 2, 32),
    "GROWTH_ENTRIES_MAX": (1, 8, 4096),
    "MARKERS_PER_REQUEST_MAX": (1, 2, 1000),
    "waiting_max": (1, 3, 1000),
    "uncommitted_max": (4, 12, 10_000),
}
TAILS: Final = (0, 300)
"""Bytes of each log in memory: with none, and with less than a batch or two, followers are served from the file, which may be cold."""


def draw_limits(rng: Random) -> dict[str, int]:
    """In half of the runs the product's own."""
    drawn = {name: rng.choice(choices) for name, choices in CHOICES.items()}
    return drawn if rng.random() < 0.5 else {}


def draw_tail(rng: Random) -> dict[str, int]:
    """In half of the runs the product's own. From a generator of its own, so that a seed keeps what else it draws."""
    drawn = rng.choice(TAILS)
    return {"RECENT_BYTES_MAX": drawn} if rng.random() < 0.5 else {}


@contextmanager
def limited(limits: Mapping[str, int]) -> Iterator[None]:
    """Set the limits for the time of a run."""
    before = {name: getattr(owner, name) for name, owner in OWNERS.items()}
    engine = {name: limit for name, limit in limits.items() if name not in OWNERS}
    for name, owner in OWNERS.items():
        setattr(owner, name, limits.get(name, before[name]))
    setattr(odradek.coordinator.txn.service, "EngineLimits", functools.partial(EngineLimits, **engine))  # noqa: B010  mypy: a type is replaced
    try:
        yield
    finally:
        for name, owner in OWNERS.items():
            setattr(owner, name, before[name])
        setattr(odradek.coordinator.txn.service, "EngineLimits", EngineLimits)  # noqa: B010  as above
