"""What is drawn for runs with compaction: after all else, from a generator of their own, so that a seed is otherwise what it would be without."""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import COORDINATOR, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

PROBABILITY_ALONE, PROBABILITY_OF_CLUSTERS = 0.55, 0.45
DAY_MS: Final = 24 * 3600 * 1000
SHORT_RETENTION_MS: Final = (0, 300, 2000)
RETENTION_OF_CLUSTERS_MS: Final = 20_000
"""Longer than any broker is away in a run: one that lags for longer never hears of a tombstone, in Apache Kafka neither."""
FAULTS_MAX_ALONE, FAULTS_MAX_OF_CLUSTERS = 2, 1
TABLE_PROBABILITY: Final = 0.5


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The compacted topic of clients. Of so many records `tombstones` have no value; `max_lag_ms` 0: there is none."""

    keys: int
    tombstones: float
    segment_ms: int
    dirty_ratio: float
    max_lag_ms: int

    @property
    def configs(self) -> dict[str, str]:
        """What the topic is created with; the rest it has from the brokers, delete.retention.ms too."""
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": str(self.segment_ms),
            "min.cleanable.dirty.ratio": str(self.dirty_ratio),
        }
        return configs | ({"max.compaction.lag.ms": str(self.max_lag_ms)} if self.max_lag_ms else {})


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """See the module."""

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


def draw_compaction(options: "Options") -> None:
    """Give the run compaction, or not, and faults that strike while a segment is swapped in."""
    rng = Random(options.seed * 32_452_843 + 13)
    alone = options.brokers == 1
    if rng.random() >= (PROBABILITY_ALONE if alone else PROBABILITY_OF_CLUSTERS):
        return
    retention_ms = rng.choice((DAY_MS, *SHORT_RETENTION_MS) if alone else (DAY_MS, RETENTION_OF_CLUSTERS_MS))
    if any(fault.kind == "clock" for fault in options.faults):
        retention_ms = DAY_MS  # a minute more on the clock of one host makes any other too short
    options.compaction = CompactionOptions(
        segment_bytes=rng.choice((1500, 3000, 6000)),
        backoff_ms=rng.choice((100, 500, 1500) if alone else (300, 1000, 2000)),
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
        for _ in range(rng.randint(0, FAULTS_MAX_ALONE if alone else FAULTS_MAX_OF_CLUSTERS))
    ]
    options.faults = in_order([*options.faults, *faults])
    options.compaction = replace(options.compaction, table=_draw_table(options))


def _draw_table(options: "Options") -> TableOptions | None:
    """From a generator of its own again. Not where nothing is promised."""
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
