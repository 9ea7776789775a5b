"""Limits of the product, with small values in some runs: a short run then reaches the states of a long one or a large
cluster.

The limits are module attributes. `limited` sets them, and restores them after the run; the product has no switch for
them.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import odradek.broker.partition.background_jobs
import odradek.broker.partition.waiters
import odradek.cluster.controller.sweeps
import odradek.coordinator.txn.markers
import odradek.coordinator.txn.service
import odradek.storage.data_directory.log_manager
import odradek.storage.log.flushing
import odradek.storage.producers.state
import odradek.storage.segment.segment
import odradek.storage.segment.segments
from odradek.runtime.shard import EngineLimits

OWNERS: Final[Mapping[str, Any]] = {
    "SEALED_INDEXES_LOADED_MAX": odradek.storage.segment.segments,
    "GROWTH_ENTRIES_MAX": odradek.broker.partition.waiters,
    "MARKERS_PER_REQUEST_MAX": odradek.coordinator.txn.markers,
    "RECENT_BYTES_MAX": odradek.storage.segment.segment,
    "CHANGES_PER_SLICE": odradek.cluster.controller.sweeps,
    "BYTES_TO_RECOVER_MAX": odradek.storage.data_directory.log_manager,
    "RECOVERY_START_BYTES_MIN": odradek.storage.log.flushing,
    "RECOVERY_STARTS_INTERVAL_MS": odradek.broker.partition.background_jobs,
    "PRODUCERS_MAX": odradek.storage.producers.state,
    "EVICTION_IDLE_MS_MIN": odradek.storage.producers.state,
}
CHOICES: Final[Mapping[str, tuple[int, ...]]] = {
    "SEALED_INDEXES_LOADED_MAX": (1, 2, 32),
    "GROWTH_ENTRIES_MAX": (1, 8, 4096),
    "MARKERS_PER_REQUEST_MAX": (1, 2, 1000),
    "waiting_max": (1, 3, 1000),
    "uncommitted_max": (4, 12, 10_000),
}
TAILS: Final = (0, 300)
"""Bytes of each log in memory.

With 0 or less than two batches, followers are served from the file, which may be cold.
"""


CONTROLLER_SLICES: Final = (1, 3)
"""Partitions that one decision of the controller about a broker changes."""
PRODUCERS: Final = (4, 8)
"""Producers of a partition, in runs that evict producers."""
EVICTION_IDLE_MS: Final = 10_000
"""Idle time in milliseconds before eviction, in these runs.

The expiry time passes at most twice as fast as the clients' clock. They send no batch again after 4 s
(`batch_options.DELIVERY_MS`).
"""
BYTES_TO_RECOVER: Final = (200, 1_000)
"""Bytes of a log that a recovery checks at most, apart from those of the last second."""


def generate_limits(rng: Random) -> dict[str, int]:
    """Return small limits in half of the runs; else an empty mapping (the product's limits)."""
    generated = {name: rng.choice(choices) for name, choices in CHOICES.items()}
    return generated if rng.random() < 0.5 else {}


def generate_log_tail(rng: Random) -> dict[str, int]:
    """Return a small log tail in half of the runs; else an empty mapping.

    It uses a generator of its own, so that other generated values of a seed stay the same.
    """
    generated = rng.choice(TAILS)
    return {"RECENT_BYTES_MAX": generated} if rng.random() < 0.5 else {}


def generate_controller_slices(rng: Random) -> dict[str, int]:
    """Return few changes per slice of the controller in half of the runs; else an empty mapping.

    It uses a generator of its own, as `generate_log_tail`.
    """
    generated = rng.choice(CONTROLLER_SLICES)
    return {"CHANGES_PER_SLICE": generated} if rng.random() < 0.5 else {}


def generate_recovery_starts(rng: Random) -> dict[str, int]:
    """Return limits for frequent recovery starts in half of the runs; else an empty mapping.

    It uses a generator of its own, as `generate_log_tail`.
    """
    limits = {
        "BYTES_TO_RECOVER_MAX": rng.choice(BYTES_TO_RECOVER),
        "RECOVERY_START_BYTES_MIN": 1,
        "RECOVERY_STARTS_INTERVAL_MS": rng.choice((50, 1_000)),
    }
    return limits if rng.random() < 0.5 else {}


def generate_producers(rng: Random) -> dict[str, int]:
    """Return limits for the eviction of producers in half of the runs; else an empty mapping.

    It uses a generator of its own, as `generate_log_tail`. Only runs whose producers expire have these limits: clients
    of the other runs send a batch again after any time.
    """
    limits = {"PRODUCERS_MAX": rng.choice(PRODUCERS), "EVICTION_IDLE_MS_MIN": EVICTION_IDLE_MS}
    return limits if rng.random() < 0.5 else {}


@contextmanager
def limited(limits: Mapping[str, int]) -> Iterator[None]:
    """Set the limits during a run."""
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
