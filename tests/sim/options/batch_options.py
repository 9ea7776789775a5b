"""Compression and timestamps of the batches of clients, and the expiration of producers, in part of the runs.

They have a generator of their own, so that other generated values of a seed stay the same.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.workloads.codecs import GZIP, LZ4, SNAPPY, ZSTD

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

PROBABILITY: Final = 0.5
EXPIRATION_PROBABILITY: Final = 0.3
"""Part of the runs in which producers expire."""
EXPIRATION_MS: Final = 15_000
"""`producer.id.expiration.ms` of these runs.

Brokers cannot detect duplicates of an expired producer, so this is several times `DELIVERY_MS`. The factor 2 is for a
step of a clock (`odradek.runtime.expiry_time`).
"""
DELIVERY_MS: Final = 4_000
"""Time after which producers of these runs send a batch no more (`delivery.timeout.ms`)."""
HOUR_MS: Final = 3600 * 1000
OLD_MS: Final = 48 * HOUR_MS
"""Greatest age of a record, in milliseconds: beyond producer.id.expiration.ms, and below retention.ms."""
FUTURE_MS: Final = HOUR_MS // 2
"""Greatest lead of a record, in milliseconds: below message.timestamp.after.max.ms, also after a step of a clock."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Parts of the batches that are compressed, and that have old or future timestamps."""

    compressed: float
    codecs: tuple[int, ...]
    old: float
    future: float

    def describe(self) -> str:
        return f"{self.compressed:.0%} compressed, {self.old:.0%} old, {self.future:.0%} from the future"


def generate_batches(options: "Options") -> None:
    """Set the options of batches and of the expiration of producers in part of the runs."""
    rng = Random(options.seed * 67_867_967 + 31)
    if rng.random() < EXPIRATION_PROBABILITY:
        options.producer_expiration_ms = EXPIRATION_MS
    if rng.random() >= PROBABILITY:
        return
    codecs = (GZIP, SNAPPY, LZ4, ZSTD)
    options.batches = BatchOptions(
        compressed=rng.choice((0.0, 0.3, 1.0)),
        codecs=tuple(rng.sample(codecs, rng.randint(1, len(codecs)))),
        old=rng.choice((0.0, 0.1, 0.5, 1.0)),
        future=rng.choice((0.0, 0.1, 0.5)),
    )
