"""The checkers' own reader of `__cluster_metadata`: which partitions there are, who leads them, who is in sync."""

import struct
from dataclasses import dataclass, replace
from typing import Final

from tests.sim.checkers.batches import Batch

TOPIC, PARTITION, PARTITION_CHANGE, REMOVE_TOPIC = 2, 3, 5, 9
LEADER_CHANGE: Final = 2
"""Type of the control record with which a leader of the metadata log begins its term."""
NO_LEADER: Final = -1
NO_CHANGE: Final = -2

Uuid = bytes
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the metadata log says about one partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One record's effect on a partition; `before` is None for a new one, `after` None for one whose topic is removed."""

    place: Place
    before: PartitionState | None
    after: PartitionState | None


class MetadataModel:
    """State after the records that were applied."""

    def __init__(self) -> None:
        self.partitions: dict[Place, PartitionState] = {}
        self.terms: dict[int, int] = {}
        """Leader of each term of the metadata log."""
        self._topics: dict[Uuid, str] = {}

    def apply(self, batch: Batch) -> list[Change]:
        """The changes to partitions; also those of terms are noted."""
        if batch.is_control:
            if batch.control_type == LEADER_CHANGE:
                value = batch.records[0][1]
                assert value is not None
                self.terms[batch.leader_epoch] = int(struct.unpack_from(">i", value, 2)[0])
            return []
        changes: list[Change] = []
        for _, value in batch.records:
            assert value is not None
            changes += self._record(_Reader(value))
        return changes

    def _record(self, reader: "_Reader") -> list[Change]:
        assert reader.uvarint() == 1, "frame version"
        kind, version = reader.uvarint(), reader.uvarint()
        if kind == TOPIC:
            name = reader.string()
            self._topics[reader.take(16)] = name
        elif kind == PARTITION:
            return [self._partition(reader, version)]
        elif kind == PARTITION_CHANGE:
            return self._change(reader)
        elif kind == REMOVE_TOPIC:
            name = self._topics.pop(reader.take(16), "")
            gone = [place for place in self.partitions if place[0] == name]
            return [Change(place, self.partitions.pop(place), None) for place in gone]
        return []

    def _partition(self, reader: "_Reader", version: int) -> Change:
        index = reader.int32()
        place = (self._topics[reader.take(16)], index)
        replicas, isr, removing, adding = (reader.ids() for _ in range(4))
        leader, leader_epoch, _ = reader.int32(), reader.int32(), reader.int32()
        if version >= 1:
            reader.take(16 * (reader.uvarint() - 1))
        before = self.partitions.get(place)
        after = self.partitions[place] = PartitionState(replicas, isr, leader, leader_epoch, adding, removing)
        return Change(place, before, after)

    def _change(self, reader: "_Reader") -> list[Change]:
        index = reader.int32()
        name = self._topics.get(reader.take(16))
        before = self.partitions.get((name or "", index))
        if name is None or before is None:
            return []
        after = before
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            field = _Reader(reader.take(size))
            if tag == 0:
                after = replace(after, isr=field.ids())
            elif tag == 1:
                leader = field.int32()
                if leader != NO_CHANGE:
                    after = replace(after, leader=leader, leader_epoch=before.leader_epoch + 1)
            elif tag == 2:
                after = replace(after, replicas=field.ids())
            elif tag == 3:
                after = replace(after, removing=field.ids())
            elif tag == 4:
                after = replace(after, adding=field.ids())
            elif tag == 6:
                after = replace(after, eligible=field.ids())
        self.partitions[name, index] = after
        return [Change((name, index), before, after)]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        part = self.data[self.position : self.position + size]
        self.position += size
        return part

    def uvarint(self) -> int:
        shift = result = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def string(self) -> str:
        return self.take(self.uvarint() - 1).decode()

    def ids(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(max(0, self.uvarint() - 1)))
