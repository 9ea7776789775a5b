"""Reader of `__cluster_metadata`: partitions, their leaders and their ISR, and ACLs.

Part of the checkers, without code of the broker.
"""

import struct
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.sim.checkers.acls import AclChange, AclRow
from tests.sim.checkers.batches import Batch
from tests.sim.checkers.fields import Fields
from tests.sim.checkers.tokens import TokenChange

TOPIC, PARTITION, PARTITION_CHANGE, REMOVE_TOPIC = 2, 3, 5, 9
ACL, REMOVE_ACL = 18, 19
CONFIG, SCRAM, QUOTA, REMOVE_SCRAM = 4, 11, 14, 22
TOKEN, REMOVE_TOKEN = 10, 26
LEADER_CHANGE: Final = 2
"""Type of the control record with which a leader of the metadata log begins its epoch."""
NO_LEADER: Final = -1
NO_CHANGE: Final = -2

Uuid = bytes
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of one partition by the metadata log."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of one record on a partition.

    `before` is None for a new partition, `after` is None if its topic was deleted.
    """

    place: Place
    before: PartitionState | None
    after: PartitionState | None


class Setting(NamedTuple):
    """One record of a topic, a configuration, a user or a quota, which no fault and no election writes."""

    offset: int
    kind: int
    name: str
    """Name of the topic, the configured resource or the user; empty for quotas."""


class MetadataModel:
    """State of the partitions after the applied records."""

    def __init__(self) -> None:
        self.partitions: dict[Place, PartitionState] = {}
        self.terms: dict[int, int] = {}
        """By epoch of the metadata log: its leader."""
        self.acl_changes: list[AclChange] = []
        self.token_changes: list[TokenChange] = []
        self.settings: list[Setting] = []
        self._topics: dict[Uuid, str] = {}

    def apply(self, batch: Batch) -> list[Change]:
        """Apply a batch and return the changes of partitions. LeaderChange records are added to `terms`."""
        if batch.is_control:
            if batch.control_type == LEADER_CHANGE:
                value = batch.records[0][1]
                assert value is not None
                self.terms[batch.leader_epoch] = int(struct.unpack_from(">i", value, 2)[0])
            return []
        changes: list[Change] = []
        for offset, (_, value) in enumerate(batch.records, batch.base_offset):
            assert value is not None
            changes += self._record(offset, Fields(value))
        return changes

    def _record(self, offset: int, reader: "Fields") -> list[Change]:
        assert reader.uvarint() == 1, "frame version"
        kind, version = reader.uvarint(), reader.uvarint()
        if kind == TOPIC:
            name = reader.string(flexible=True)
            self._topics[reader.bytes(16)] = name
            self.settings.append(Setting(offset, kind, name))
        elif kind == PARTITION:
            change = self._partition(reader, version)
            self.settings.append(Setting(offset, kind, change.place[0]))
            return [change]
        elif kind == PARTITION_CHANGE:
            return self._change(reader)
        elif kind == REMOVE_TOPIC:
            name = self._topics.pop(reader.bytes(16), "")
            self.settings.append(Setting(offset, kind, name))
            removed = [place for place in self.partitions if place[0] == name]
            return [Change(place, self.partitions.pop(place), None) for place in removed]
        elif kind == ACL:
            self.acl_changes.append(AclChange(offset, reader.bytes(16), _acl(reader)))
        elif kind == REMOVE_ACL:
            self.acl_changes.append(AclChange(offset, reader.bytes(16), None))
        elif kind == TOKEN:
            self.token_changes.append(_token(offset, reader))
        elif kind == REMOVE_TOKEN:
            self.token_changes.append(TokenChange(offset, reader.string(flexible=True), None))
        elif kind in {CONFIG, SCRAM, REMOVE_SCRAM, QUOTA}:
            self.settings.append(Setting(offset, kind, _name_of_setting(kind, reader)))
        return []

    def _partition(self, reader: "Fields", version: int) -> Change:
        index = reader.number(">i")
        place = (self._topics[reader.bytes(16)], index)
        replicas, isr, removing, adding = (_ids(reader) for _ in range(4))
        leader, leader_epoch, _ = reader.number(">i"), reader.number(">i"), reader.number(">i")
        if version >= 1:
            reader.bytes(16 * reader.count(flexible=True))
        before = self.partitions.get(place)
        after = self.partitions[place] = PartitionState(replicas, isr, leader, leader_epoch, adding, removing)
        return Change(place, before, after)

    def _change(self, reader: "Fields") -> list[Change]:
        index = reader.number(">i")
        name = self._topics.get(reader.bytes(16))
        before = self.partitions.get((name or "", index))
        if name is None or before is None:
            return []
        after = before
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            field = Fields(reader.bytes(size))
            if tag == 0:
                after = replace(after, isr=_ids(field))
            elif tag == 1:
                leader = field.number(">i")
                if leader != NO_CHANGE:
                    after = replace(after, leader=leader, leader_epoch=before.leader_epoch + 1)
            elif tag == 2:
                after = replace(after, replicas=_ids(field))
            elif tag == 3:
                after = replace(after, removing=_ids(field))
            elif tag == 4:
                after = replace(after, adding=_ids(field))
            elif tag == 6:
                after = replace(after, eligible=_ids(field))
        self.partitions[name, index] = after
        return [Change((name, index), before, after)]


def _ids(fields: Fields) -> tuple[int, ...]:
    return tuple(fields.number(">i") for _ in range(fields.count(flexible=True)))


def _name_of_setting(kind: int, fields: Fields) -> str:
    if kind == CONFIG:
        fields.number(">b")
    return "" if kind == QUOTA else fields.string(flexible=True)


def _token(offset: int, fields: Fields) -> TokenChange:
    for _ in ("owner", "requester"):
        fields.string(flexible=True)
    for _ in range(fields.count(flexible=True)):
        fields.string(flexible=True)
    _, max_ms, expires_ms = (fields.number(">q") for _ in range(3))
    return TokenChange(offset, fields.string(flexible=True), min(max_ms, expires_ms))


def _acl(fields: Fields) -> AclRow:
    resource, name, pattern = fields.number(">b"), fields.string(flexible=True), fields.number(">b")
    principal, host = fields.string(flexible=True), fields.string(flexible=True)
    return AclRow(resource, name, pattern, principal, host, fields.number(">b"), fields.number(">b"))
