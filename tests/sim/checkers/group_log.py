"""Reader of `__consumer_offsets`: offsets, classic groups, and assignments of members of the consumer protocol.

Part of the checkers, without code of the broker.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.sim.checkers.batches import COMMIT, Batch
from tests.sim.checkers.fields import Fields
from tests.sim.checkers.replica_log import ReplicaLog

OFFSET_KEYS: Final = (0, 1)
CLASSIC_GROUP, CONSUMER_GROUP, CURRENT_ASSIGNMENT = 2, 3, 8
NONE_PENDING: Final = -1
FIRST_CONSUMER_EPOCH: Final = 2
"""Epoch of a consumer group after its first member has joined."""

Place = tuple[str, str, int]
"""(group, topic, partition)"""
Owned = frozenset[tuple[bytes, int]]
"""(topic id, partition)"""


@dataclass(slots=True)
class Committed:
    """A committed or pending offset. `offset` is None for a deletion."""

    place: Place
    offset: int | None
    record: int
    producer_id: int


@dataclass(slots=True)
class Member:
    """Current assignment of one member of the consumer protocol.

    `owned` includes partitions that it has yet to revoke.
    """

    epoch: int
    assigned: Owned
    owned: Owned


def _partitions(fields: Fields) -> Owned:
    partitions = []
    for _ in range(fields.count(flexible=True)):
        topic_id = fields.bytes(16)
        partitions += [(topic_id, fields.number(">i")) for _ in range(fields.count(flexible=True))]
        _skip_tags(fields)
    return frozenset(partitions)


def _skip_tags(fields: Fields) -> None:
    for _ in range(fields.uvarint()):
        fields.uvarint()
        fields.bytes(fields.uvarint())


def read_offset(key: bytes, value: bytes | None) -> tuple[Place, int | None]:
    """Return the group, topic and partition of an offset record, and the offset (None for a tombstone)."""
    reader = Fields(key)
    reader.number(">h")
    place = (reader.string(), reader.string(), reader.number(">i"))
    return place, None if value is None else struct.unpack_from(">q", value, 2)[0]


def read_member(value: bytes) -> Member:
    """Parse a ConsumerGroupCurrentMemberAssignmentValue."""
    reader = Fields(value)
    reader.number(">h")
    epoch = reader.number(">i")
    reader.number(">i")
    reader.number(">b")
    assigned = _partitions(reader)
    return Member(epoch, assigned, assigned | _partitions(reader))


@dataclass
class GroupModel:
    """State of one partition of `__consumer_offsets` after the added batches.

    `changes` lists all offsets that took effect, in the order of their records and markers. `assignments` holds, per
    member and member epoch, every assignment that was written.
    """

    committed: dict[Place, Committed] = field(default_factory=dict)
    changes: list[Committed] = field(default_factory=list)
    pending: dict[int, dict[Place, Committed]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    """By group: the kind of its newest group record (classic or consumer protocol)."""
    _epochs: dict[str, int] = field(default_factory=dict)
    _deleted: dict[str, None] = field(default_factory=dict)
    members: dict[str, dict[str, Member]] = field(default_factory=dict)
    assignments: dict[tuple[str, str, int], dict[Owned, None]] = field(default_factory=dict)
    begun_anew: dict[str, int] = field(default_factory=dict)
    """By group: how often it restarted the count of its epochs.

    An empty group does that after its deletion or a change of protocol.
    """
    findings: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "GroupModel":
        model = cls()
        for batch in batches:
            model.add(batch)
        return model

    def add(self, batch: Batch) -> None:
        if batch.is_control:
            if batch.producer_id >= 0:
                self._end(batch.producer_id, commit=batch.control_type == COMMIT)
            return
        touched: dict[str, None] = {}
        for index, (key, value) in enumerate(batch.records):
            assert key is not None
            kind = struct.unpack_from(">h", key)[0]
            if kind in OFFSET_KEYS:
                self._offset(batch, batch.base_offset + index, key, value)
                continue
            reader = Fields(key)
            reader.number(">h")
            group = reader.string()
            if kind in {CLASSIC_GROUP, CONSUMER_GROUP}:
                self._group(group, kind, value)
            elif kind == CURRENT_ASSIGNMENT:
                touched[group] = None
                self._member(group, reader.string(), value)
        for group in touched:
            self.findings += self._owned_twice(group, batch.base_offset)

    # ---- offsets ----------------------------------------------------------------------------------------------------

    def _offset(self, batch: Batch, record: int, key: bytes, value: bytes | None) -> None:
        place, offset = read_offset(key, value)
        change = Committed(place, offset, record, batch.producer_id if batch.is_transactional else NONE_PENDING)
        if batch.is_transactional:
            self.pending.setdefault(batch.producer_id, {})[place] = change
        else:
            self._take_effect(change)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        ended = self.pending.pop(producer_id, {})
        if ended:
            self._count("offsets of a transaction committed" if commit else "offsets of a transaction aborted")
        for place, change in ended.items() if commit else ():
            before = self.committed.get(place)
            if before is None or before.record < change.record:
                self._take_effect(change)

    def _take_effect(self, change: Committed) -> None:
        self.changes.append(change)
        if change.offset is None:
            self.committed.pop(change.place, None)
        else:
            self.committed[change.place] = change

    # ---- groups -----------------------------------------------------------------------------------------------------

    def _group(self, group: str, kind: int, value: bytes | None) -> None:
        if value is None:
            if self.kinds.get(group) == kind:
                self._deleted[group] = None
            return
        reader = Fields(value)
        reader.number(">h")
        if kind == CLASSIC_GROUP:
            reader.string()
        epoch = reader.number(">i")
        self._count("classic generation" if kind == CLASSIC_GROUP else "epoch of a consumer group")
        if self.kinds.get(group, kind) != kind:
            self._count("group upgraded" if kind == CONSUMER_GROUP else "group downgraded")
        if group in self.kinds and (
            epoch < self._epochs[group]
            or (group in self._deleted and (self.kinds[group] == kind or self._replaces_empty_group(kind, epoch)))
        ):
            self.begun_anew[group] = self.begun_anew.get(group, 0) + 1
        self._deleted.pop(group, None)
        self.kinds[group], self._epochs[group] = kind, epoch

    @staticmethod
    def _replaces_empty_group(kind: int, epoch: int) -> bool:
        """Return True if a new consumer group may have replaced a classic group that became empty.

        The log has the last generation of the classic group only if the record of the empty group was written.
        """
        return kind == CONSUMER_GROUP and epoch == FIRST_CONSUMER_EPOCH

    def _member(self, group: str, member_id: str, value: bytes | None) -> None:
        members = self.members.setdefault(group, {})
        if value is None:
            members.pop(member_id, None)
            return
        member = members[member_id] = read_member(value)
        self.assignments.setdefault((group, member_id, member.epoch), {})[member.assigned] = None

    def _owned_twice(self, group: str, offset: int) -> Iterator[str]:
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, member in self.members.get(group, {}).items():
            for topic_id, index in sorted(member.owned):
                other = owners.setdefault((topic_id, index), member_id)
                if other != member_id:
                    yield (
                        f"I7 {group}: at offset {offset} partition {index} belongs to {other} and to {member_id} "
                        f"({self.members[group]})"
                    )

    def _count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1


class FollowedGroups:
    """Group model of a growing log on one host."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log
        self.truncations = log.truncations
        self.model = GroupModel()
        self._end = 0

    def up_to_date(self) -> GroupModel:
        """Read the new batches of the log and return the model.

        The log must not have been truncated since this object was created.
        """
        new = []
        for placed in reversed(self.log.placed):
            if placed.batch.base_offset < self._end:
                break
            new.append(placed.batch)
        for batch in reversed(new):
            self.model.add(batch)
            self._end = batch.last_offset + 1
        return self.model
