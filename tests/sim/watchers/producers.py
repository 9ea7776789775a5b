"""Number of producers that brokers remove because they expire, or because the table of a partition is full."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from odradek.storage.producers.entry import ProducerUpdate
from odradek.storage.producers.state import ProducerState

EXPIRED: Final = "producer expired"
EVICTED: Final = "producer evicted"


@contextmanager
def removals_counted() -> Iterator[Counter[str]]:
    """Count the removals of a run, by the names EXPIRED and EVICTED."""
    counts: Counter[str] = Counter()
    expire, evict = ProducerState.expire, ProducerState._evict_for

    def count_expired(self: ProducerState, monotonic_ms: int, expiration_ms: int) -> int:
        removed = expire(self, monotonic_ms, expiration_ms)
        counts[EXPIRED] += removed
        return removed

    def count_evicted(self: ProducerState, update: ProducerUpdate) -> bool:
        before = len(self.entries)
        needs_entry = evict(self, update)
        counts[EVICTED] += before - len(self.entries)
        return needs_entry

    ProducerState.expire, ProducerState._evict_for = count_expired, count_evicted  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        ProducerState.expire, ProducerState._evict_for = expire, evict  # type: ignore[method-assign]
