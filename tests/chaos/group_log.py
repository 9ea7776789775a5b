"""The judge's own reader of `__consumer_offsets`: which offsets became the groups' own, in which order, and how often they rebalanced."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.batches import COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.sim.checkers.batches import Batch
    from tests.sim.history import Partition

OFFSET_COMMITS: Final = (0, 1)
CLASSIC_GROUP, CONSUMER_GROUP = 2, 3
CLASSIC_FLEXIBLE_VERSION: Final = 4
REMOVED: Final = -1
"""The offset that a tombstone leaves."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that has become its group's: one outside of transactions with its record, one of a transaction with the marker of its commit."""

    group: str
    place: Partition
    offset: int
    at_ms: int
    """When, by the clock of the broker."""


@dataclass
class GroupLog:
    commits: list[Committed] = field(default_factory=list)
    generations: dict[str, set[int]] = field(default_factory=dict)
    """Of each group: generations of the classic protocol, epochs of the other."""
    open: dict[int, list[Committed]] = field(default_factory=dict)
    """Offsets of transactions that no marker has ended, by producer id."""

    def final(self) -> dict[str, dict[Partition, int]]:
        found: dict[str, dict[Partition, int]] = {}
        for each in self.commits:
            found.setdefault(each.group, {})[each.place] = each.offset
        return found

    def add(self, batches: Iterable[Batch]) -> None:
        """All batches of one more partition; a group lives in one partition only."""
        for batch in batches:
            if batch.is_control:
                if batch.producer_id >= 0:
                    self._end(batch)
                continue
            for key, value in batch.records:
                assert key is not None
                found = self._entry(key, value, batch.max_timestamp)
                if found is None:
                    continue
                if batch.is_transactional:
                    self.open.setdefault(batch.producer_id, []).append(found)
                else:
                    self.commits.append(found)

    def _end(self, batch: Batch) -> None:
        last: dict[tuple[str, Partition], Committed] = {}
        for each in self.open.pop(batch.producer_id, ()):
            last[each.group, each.place] = Committed(each.group, each.place, each.offset, batch.max_timestamp)
        if batch.control_type == COMMIT:
            self.commits += last.values()

    def _entry(self, key: bytes, value: bytes | None, at_ms: int) -> Committed | None:
        kind = _int16(key, 0)
        group, end = _string(key, 2)
        if kind in OFFSET_COMMITS:
            topic, end = _string(key, end)
            place = (topic, int(struct.unpack_from(">i", key, end)[0]))
            offset = REMOVED if value is None else int(struct.unpack_from(">q", value, 2)[0])
            return Committed(group, place, offset, at_ms)
        if value is None:
            return None
        if kind == CLASSIC_GROUP:
            self._generation(group, _classic_generation(value))
        elif kind == CONSUMER_GROUP:
            self._generation(group, int(struct.unpack_from(">i", value, 2)[0]))
        return None

    def _generation(self, group: str, generation: int) -> None:
        self.generations.setdefault(group, set()).add(generation)


def _int16(data: bytes, position: int) -> int:
    return int(struct.unpack_from(">h", data, position)[0])


def _string(data: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + _int16(data, position)
    return data[start:end].decode(), end


def _classic_generation(value: bytes) -> int:
    """It stands behind the protocol type."""
    if _int16(value, 0) >= CLASSIC_FLEXIBLE_VERSION:
        end = 3 + value[2] - 1  # a compact string, shorter than 127 bytes
    else:
        _, end = _string(value, 2)
    return int(struct.unpack_from(">i", value, end)[0])
