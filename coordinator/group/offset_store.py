"""The offsets of the groups of one partition of `__consumer_offsets`: committed ones, and those of open transactions.

There may be hundreds of thousands, so an offset is kept as packed bytes (`Stored` opens them): a third of what an object
with its numbers takes, and nothing for the garbage collector to walk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from sys import intern
from typing import Final, NamedTuple

from odradek.protocol.primitives import ZERO_UUID

_FIXED: Final = Struct(">qiqqq16s")
_RECORD_OFFSET: Final = slice(28, 36)
NO_EPOCH: Final = -1
NEVER_MS: Final = -1
"""`Stored.expire_ms` of an offset without a retention of its own."""
ZERO_TOPIC_ID: Final = ZERO_UUID.bytes

Partitions = dict[int, bytes]
"""partition -> packed offset"""
Place = tuple[str, str, int]
"""(group, topic, partition)"""


class Stored(NamedTuple):
    """One offset as its record said it. `record_offset` is where that record stands in the log."""

    offset: int
    leader_epoch: int
    commit_ms: int
    expire_ms: int
    record_offset: int
    topic_id: bytes
    metadata: str

    def packed(self) -> bytes:
        """The form it is kept in."""
        return _FIXED.pack(*self[:6]) + self.metadata.encode()


def unpacked(packed: bytes) -> Stored:
    """What `Stored.packed` made."""
    return Stored._make((*_FIXED.unpack_from(packed), packed[_FIXED.size :].decode()))


def record_offset_of(packed: bytes) -> int:
    """Where the record of a packed offset stands in the log."""
    return int.from_bytes(packed[_RECORD_OFFSET], "big")


def metadata_bytes_of(packed: bytes) -> int:
    """What the client has said beside the offset."""
    return len(packed) - _FIXED.size


@dataclass(slots=True)
class OffsetStore:
    """Offsets by (group, topic, partition), committed and pending ones apart.

    Equal stores say the same; what was emptied leaves nothing behind.
    """

    groups: dict[str, dict[str, Partitions]] = field(default_factory=dict)
    """What is committed: group -> topic -> partition -> packed offset."""
    pending: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    """What waits for the end of its transaction, by producer id."""
    open: dict[str, dict[tuple[str, int], dict[int, None]]] = field(default_factory=dict)
    """The same seen from the group: group -> (topic, partition) -> producers with something pending there."""
    count: int = 0
    """Committed offsets."""
    pending_count: int = 0
    """Offsets in open transactions; one in two of them counts twice."""
    metadata_bytes: int = 0
    """In all of them."""
    end: int = field(default=0, compare=False)
    """Every offset that is here comes from a record below this one of the log."""

    # ---- reading ----------------------------------------------------------------------------------------------------

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, bytes]]:
        """The committed offsets of a group, packed."""
        return self.groups.get(group_id, _NOTHING)

    def get(self, group_id: str, topic: str, partition: int) -> Stored | None:
        """The committed offset."""
        packed = self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)
        return None if packed is None else unpacked(packed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """An open transaction has an offset for this partition."""
        places = self.open.get(group_id)
        return places is not None and (topic, partition) in places

    def has_pending(self, group_id: str) -> bool:
        """An open transaction has an offset for this group."""
        return group_id in self.open

    def count_of(self, group_id: str) -> int:
        """Committed offsets of a group."""
        return sum(map(len, self.topics(group_id).values()))

    def packed(self, place: Place) -> bytes | None:
        """The committed offset as it is kept."""
        group_id, topic, partition = place
        return self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)

    # ---- writing, by `apply` alone ----------------------------------------------------------------------------------

    def put(self, place: Place, packed: bytes) -> None:
        """A plain commit."""
        group_id, topic, partition = place
        topics = self.groups.get(group_id)
        if topics is None:
            topics = self.groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[intern(topic)] = {}
        before = partitions.get(partition)
        if before is None:
            self.count += 1
        else:
            self.metadata_bytes -= metadata_bytes_of(before)
        self.metadata_bytes += metadata_bytes_of(packed)
        partitions[partition] = packed

    def put_pending(self, producer_id: int, place: Place, packed: bytes) -> None:
        """A commit within a transaction; one for the same place in the same transaction is replaced."""
        group_id, topic, partition = place
        place = (intern(group_id), intern(topic), partition)  # one text for all that wait, and not one for each
        offsets = self.pending.setdefault(producer_id, {})
        before = offsets.get(place)
        if before is None:
            self.pending_count += 1
        else:
            self.metadata_bytes -= metadata_bytes_of(before)
        self.metadata_bytes += metadata_bytes_of(packed)
        offsets[place] = packed
        places = self.open.setdefault(group_id, {})
        places.setdefault((topic, partition), {})[producer_id] = None

    def remove(self, place: Place) -> None:
        """A tombstone: of the committed offset, and of all that is pending for the same place."""
        group_id, topic, partition = place
        topics = self.groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        packed = None if partitions is None else partitions.pop(partition, None)
        if topics is not None and packed is not None:
            self.count -= 1
            self.metadata_bytes -= metadata_bytes_of(packed)
            if not partitions:
                del topics[topic]
                if not topics:
                    del self.groups[group_id]
        for producer_id in tuple(self.open.get(group_id, {}).get((topic, partition), ())):
            offsets = self.pending[producer_id]
            self.metadata_bytes -= metadata_bytes_of(offsets.pop(place))
            if not offsets:
                del self.pending[producer_id]
            self._close(producer_id, place)

    def complete(self, producer_id: int, *, commit: bool) -> list[str]:
        """The marker of a transaction. Returns the group of each offset that has become the committed one by it.

        Of a plain commit and one in a transaction the record that stands later in the log is in force, whenever the
        marker came: it is the one that compaction keeps.
        """
        moved: list[str] = []
        for place, packed in self.pending.pop(producer_id, {}).items():
            self._close(producer_id, place)
            self.metadata_bytes -= metadata_bytes_of(packed)
            if commit:
                group_id, topic, partition = place
                present = self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)
                if present is None or record_offset_of(present) < record_offset_of(packed):
                    self.put(place, packed)
                    moved.append(group_id)
        return moved

    def _close(self, producer_id: int, place: Place) -> None:
        group_id, topic, partition = place
        self.pending_count -= 1
        places = self.open[group_id]
        producers = places[topic, partition]
        del producers[producer_id]
        if not producers:
            del places[topic, partition]
            if not places:
                del self.open[group_id]


_NOTHING: Final[Mapping[str, Partitions]] = {}
_NO_PARTITIONS: Final[Partitions] = {}
