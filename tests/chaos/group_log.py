"""Reader of `__consumer_offsets`, independent of the broker's code: committed offsets in log order, and generations."""

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
"""Committed offset of a partition after a tombstone."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset of a group.

    A transactional offset is committed by the COMMIT marker, other offsets by their record.
    """

    group: str
    partition: Partition
    offset: int
    at_ms: int
    """Wall-clock time of the broker in ms."""


@dataclass
class GroupOffsetsLog:
    """Committed offsets and generations of all groups, read from the partitions of `__consumer_offsets`."""

    commits: list[Committed] = field(default_factory=list)
    generations: dict[str, set[int]] = field(default_factory=dict)
    """By group: generation ids of the classic protocol, or group epochs of the consumer protocol."""
    open: dict[int, list[Committed]] = field(default_factory=dict)
    """Pending offsets of open transactions, by producer id."""

    def final(self) -> dict[str, dict[Partition, int]]:
        """Return the last committed offset by group and partition."""
        offsets: dict[str, dict[Partition, int]] = {}
        for commit in self.commits:
            offsets.setdefault(commit.group, {})[commit.partition] = commit.offset
        return offsets

    def add(self, batches: Iterable[Batch]) -> None:
        """Add all batches of one partition. All records of a group are in one partition."""
        for batch in batches:
            if batch.is_control:
                if batch.producer_id >= 0:
                    self._end(batch)
                continue
            for key, value in batch.records:
                assert key is not None
                offset = self._read_record(key, value, batch.max_timestamp)
                if offset is None:
                    continue
                if batch.is_transactional:
                    self.open.setdefault(batch.producer_id, []).append(offset)
                else:
                    self.commits.append(offset)

    def _end(self, batch: Batch) -> None:
        last: dict[tuple[str, Partition], Committed] = {}
        for pending in self.open.pop(batch.producer_id, ()):
            key = (pending.group, pending.partition)
            last[key] = Committed(pending.group, pending.partition, pending.offset, batch.max_timestamp)
        if batch.control_type == COMMIT:
            self.commits += last.values()

    def _read_record(self, key: bytes, value: bytes | None, at_ms: int) -> Committed | None:
        kind = _int16(key, 0)
        group, end = _string(key, 2)
        if kind in OFFSET_COMMITS:
            topic, end = _string(key, end)
            partition = (topic, int(struct.unpack_from(">i", key, end)[0]))
            offset = REMOVED if value is None else int(struct.unpack_from(">q", value, 2)[0])
            return Committed(group, partition, offset, at_ms)
        if value is None:
            return None
        if kind == CLASSIC_GROUP:
            self._add_generation(group, _classic_generation(value))
        elif kind == CONSUMER_GROUP:
            self._add_generation(group, int(struct.unpack_from(">i", value, 2)[0]))
        return None

    def _add_generation(self, group: str, generation: int) -> None:
        self.generations.setdefault(group, set()).add(generation)


def _int16(data: bytes, position: int) -> int:
    return int(struct.unpack_from(">h", data, position)[0])


def _string(data: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + _int16(data, position)
    return data[start:end].decode(), end


def _classic_generation(value: bytes) -> int:
    """Return the generation of a GroupMetadataValue. The field follows the protocol type."""
    if _int16(value, 0) >= CLASSIC_FLEXIBLE_VERSION:
        end = 3 + value[2] - 1  # a compact string, shorter than 127 bytes
    else:
        _, end = _string(value, 2)
    return int(struct.unpack_from(">i", value, end)[0])
