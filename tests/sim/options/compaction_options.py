"""Options of runs with compaction, from a generator of their own: the other options of a seed stay the same."""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import CLOCK_KINDS, COORDINATOR, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

PROBABILITY_OF_SINGLE, PROBABILITY_OF_CLUSTERS = 0.55, 0.45
DAY_MS: Final = 24 * 3600 * 1000
SHORT_RETENTION_MS: Final = (0, 300, 2000)
RETENTION_OF_CLUSTERS_MS: Final = 20_000
"""Longer than any broker is down in a run. A replica that lags for longer misses tombstones, as in Apache Kafka."""
FAULTS_MAX_OF_SINGLE, FAULTS_MAX_OF_CLUSTERS = 2, 1
TABLE_PROBABILITY: Final = 0.5


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The compacted topic of clients.

    `tombstones` is their share of the records; `max_lag_ms` 0 sets no maximum lag.
    """

    keys: int
    tombstones: float
    segment_ms: int
    dirty_ratio: float
    max_lag_ms: int

    @property
    def configs(self) -> dict[str, str]:
        """Configuration of the topic. delete.retention.ms and all others come from the brokers."""
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": str(self.segment_ms),
            "min.cleanable.dirty.ratio": str(self.dirty_ratio),
        }
        return configs | ({"max.compaction.lag.ms": str(self.max_lag_ms)} if self.max_lag_ms else {})


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Compaction settings of a run."""

    segment_bytes: int
    backoff_ms: int
    dirty_ratio: float
    lag_ms: int
    retention_ms: int
    delete_delay_ms: int
    table: TableOptions | None = None

    def describe(self) -> str:
        table = "" if self.table is None else f", a table of {self.table.keys} keys"
        return (
            f"compaction of segments of {self.segment_bytes} B each {self.backoff_ms} ms, retention "
            f"{self.retention_ms} ms{table}"
        )


def generate_compaction(options: "Options") -> None:
    """Add compaction to part of the runs, and faults during a segment swap."""
    rng = Random(options.seed * 32_452_843 + 13)
    single = options.brokers == 1
    if rng.random() >= (PROBABILITY_OF_SINGLE if single else PROBABILITY_OF_CLUSTERS):
        return
    retention_ms = rng.choice((DAY_MS, *SHORT_RETENTION_MS) if single else (DAY_MS, RETENTION_OF_CLUSTERS_MS))
    if any(fault.kind in CLOCK_KINDS for fault in options.faults):
        retention_ms = DAY_MS  # a clock step of a minute on one host would pass any shorter retention
    options.compaction = CompactionOptions(
        segment_bytes=rng.choice((1500, 3000, 6000)),
        backoff_ms=rng.choice((100, 500, 1500) if single else (300, 1000, 2000)),
        dirty_ratio=rng.choice((0.0, 0.3, 0.5)),
        lag_ms=rng.choice((0, 0, 500)),
        retention_ms=retention_ms,
        delete_delay_ms=rng.choice((0, 1000, 60_000)),
    )
    last = max((fault.operations for fault in options.faults), default=200)
    faults = [
        Fault(
            rng.choice(("die_in_swap", "power_in_swap") if _may_lose_power(options) else ("die_in_swap",)),
            rng.randrange(20, max(21, last)),
            rng.randrange(500),
            seconds=rng.random(),
            number=rng.randrange(16),
            target=COORDINATOR,
        )
        for _ in range(rng.randint(0, FAULTS_MAX_OF_SINGLE if single else FAULTS_MAX_OF_CLUSTERS))
    ]
    options.faults = in_order([*options.faults, *faults])
    options.compaction = replace(options.compaction, table=_generate_table(options))


def _generate_table(options: "Options") -> TableOptions | None:
    """Return options of the compacted topic, from another generator of its own. Lossy runs have none."""
    rng = Random(options.seed * 7_368_787 + 19)
    if rng.random() >= TABLE_PROBABILITY or options.lossy:
        return None
    return TableOptions(
        keys=rng.choice((2, 6, 20)),
        tombstones=rng.choice((0.1, 0.3)),
        segment_ms=rng.choice((100, 400, 1000)),
        dirty_ratio=rng.choice((0.0, 0.3)),
        max_lag_ms=rng.choice((0, 0, 1500)),
    )


def _may_lose_power(options: "Options") -> bool:
    return not options.durability.startswith("process kills")
