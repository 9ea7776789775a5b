"""Model of log compaction: returns the entries that the cleaner retains
(org.apache.kafka.storage.internals.log.Cleaner).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.runtime.shard import Marker, ShardRecord

if TYPE_CHECKING:
    from random import Random

LogEntry = tuple[int, ShardRecord | Marker]


def last_stable_offset(log: list[LogEntry], end: int) -> int:
    """Return the first offset of the earliest open transaction, or `end`."""
    open_: dict[int, int] = {}
    for offset, entry in log:
        if isinstance(entry, Marker):
            open_.pop(entry.producer_id, None)
        elif entry.producer_id >= 0:
            open_.setdefault(entry.producer_id, offset)
    return min(open_.values(), default=end)


def cleaned(log: list[LogEntry], end: int, rng: Random) -> list[LogEntry]:
    """The log when everything below the last stable offset, or a part of it, has been compacted.

    What was aborted goes, and of the rest all that a later record of its key supersedes. Tombstones, and markers whose
    transactions have nothing left, are removed or not: that depends on time.
    """
    bound = rng.randint(0, last_stable_offset(log, end))
    aborted = _aborted(log)
    latest: dict[bytes | None, int] = {}
    for offset, entry in log:
        if offset < bound and isinstance(entry, ShardRecord) and offset not in aborted:
            latest[entry.key] = offset
    forgets = rng.random() < 0.5
    kept: list[LogEntry] = []
    for offset, entry in log:
        if offset < bound and isinstance(entry, ShardRecord):
            if offset in aborted or latest[entry.key] != offset:
                continue
            if entry.value is None and forgets:
                continue
        kept.append((offset, entry))
    return _without_idle_markers(kept, bound) if forgets else kept


def _aborted(log: list[LogEntry]) -> frozenset[int]:
    open_: dict[int, list[int]] = {}
    aborted: list[int] = []
    for offset, entry in log:
        if isinstance(entry, Marker):
            data = open_.pop(entry.producer_id, [])
            if not entry.commit:
                aborted += data
        elif entry.producer_id >= 0:
            open_.setdefault(entry.producer_id, []).append(offset)
    return frozenset(aborted)


def _without_idle_markers(log: list[LogEntry], bound: int) -> list[LogEntry]:
    kept: list[LogEntry] = []
    busy: dict[int, None] = {}
    for offset, entry in log:
        if isinstance(entry, Marker):
            if busy.pop(entry.producer_id, 0) == 0 and offset < bound:
                continue
        elif entry.producer_id >= 0:
            busy[entry.producer_id] = None
        kept.append((offset, entry))
    return kept
