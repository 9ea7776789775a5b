"""Offset commands of the group core on an in-memory log, with fake groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.offset_store import OffsetStore, StoredOffset
from odradek.coordinator.group.offsets import core as offsets
from odradek.coordinator.group.offsets.expiry import SweepOffsets
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.records import Entry, from_record, to_record
from odradek.coordinator.group.state import GroupKind, State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.runtime.shard import Decision, Marker, RetryAfter, ShardRecord, Timer
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds
from tests.support.pure_decisions import PureDecisions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

NOW_MS = 1_700_000_000_000
RETENTION_MS = GroupConfig().offsets_retention_ms
ATTEMPTS_MAX = 1_000


@dataclass(slots=True)
class FakeGroup:
    """A group that checks nothing but what `refuses` names (method -> error).

    With `members` it keeps what it subscribes to; without, the retention counts from `since_ms` (None: from each
    commit).
    """

    group_id: str
    kind: GroupKind = GroupKind.CLASSIC
    protocol_type: str = "consumer"
    state_name: str = "Empty"
    members: bool = False
    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    never: bool = False
    refuses: dict[str, ErrorCode] = field(default_factory=dict)
    recorded_checks: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def members_bytes(self) -> int:
        return 0

    @property
    def described_bytes_max(self) -> int:
        return 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    def _check(self, check: str, *details: Any) -> None:
        self.recorded_checks.append((check, *details))
        if check in self.refuses:
            raise Refusal(self.refuses[check])

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        self._check("commit", member_id, instance_id, generation, in_transaction, api_version)

    def check_partition_commit(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        self._check("commit of", member_id, generation, topic_id, topic, partition)

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        return (Timer(("session", self.group_id, member_id), command="late", delay_ms=10_000),) if member_id else ()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check("fetch", member_id, member_epoch)

    def check_offset_delete(self) -> None:
        self._check("delete offsets")

    def check_delete(self) -> None:
        self._check("delete")
        if self.members:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.members and topic in self.topics

    def offsets_expire_from_ms(self, commit_ms: int) -> int | None:
        if self.never:
            return None
        return commit_ms if self.members or self.since_ms is None else self.since_ms

    def tombstones(self) -> tuple[ShardRecord, ...]:
        return (to_record(GroupMetadataKey(self.group_id), None),)


LogEntry = tuple[int, ShardRecord | Marker]


class OffsetsRig:
    """Runs offset commands on an in-memory log. Timers without a delay fire before `do` returns, unless `hold`."""

    def __init__(self, *, config: GroupConfig | None = None) -> None:
        self.configs = FakeConfigs(config or GroupConfig())
        self.topics = FakeTopics()
        self.now_ms = NOW_MS
        self.log: list[LogEntry] = []
        self.batches: list[tuple[ShardRecord, ...]] = []
        self.timers: dict[Any, Timer] = {}
        self.hold = False
        self.state = self._fresh()
        self.pure = PureDecisions()

    def _fresh(self) -> State:
        return State(self.configs, self.topics, FakeFeatures(), NewIds(), OffsetStore())

    @property
    def end(self) -> int:
        return self.log[-1][0] + 1 if self.log else 0

    @property
    def store(self) -> OffsetStore:
        return self.state.offsets

    # ---- commands ---------------------------------------------------------------------------------------------------

    def do(self, command: Any) -> Any:
        """Return the reply, or the name of the error."""
        for _ in range(ATTEMPTS_MAX):
            try:
                decision = self.decide(command)
            except Refusal as refusal:
                return refusal.error.name
            self.take(decision)
            if not isinstance(decision.reply, RetryAfter):
                return decision.reply
        raise AssertionError(f"no reply after {ATTEMPTS_MAX} attempts")

    def decide(self, command: Any) -> Decision[Any]:
        decide = offsets.DECISIONS[type(command)]
        decision: Decision[Any] = self.pure.decide(self.state, command, self.now_ms, decide)
        return decision

    def take(self, decision: Decision[Any]) -> None:
        if decision.records:
            self.batches.append(decision.records)
        for change in decision.soft:
            change()
        for record in decision.records:
            self.append(record)
        for timer in decision.timers:
            self.timers[timer.key] = timer
        while not self.hold and (due := [timer for timer in self.timers.values() if timer.delay_ms == 0]):
            for timer in due:
                del self.timers[timer.key]
                self.take(self.decide(timer.command))

    def append(self, entry: ShardRecord | Marker) -> None:
        offset = self.end
        self.log.append((offset, entry if isinstance(entry, Marker) else replace(entry, memo=None)))
        apply(self.state, offset, entry)

    def marker(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        self.append(Marker(producer_id, epoch, 0, commit))

    def group(self, group: FakeGroup) -> FakeGroup:
        """Add a group without a record."""
        self.state.groups[group.group_id] = group
        return group

    def replayed(self, log: Iterable[LogEntry] | None = None) -> State:
        """Return a state that replayed the records of `log`."""
        state = self._fresh()
        for offset, entry in self.log if log is None else log:
            apply(state, offset, entry)
        return state

    def sweep(self) -> None:
        self.do(SweepOffsets())


def apply(state: State, offset: int, entry: ShardRecord | Marker) -> None:
    """As GroupShard does, with fake groups for its classic ones."""
    if isinstance(entry, Marker):
        offsets.apply_marker(state, offset, entry)
        return
    entry_ = from_record(entry)
    assert entry_ is not None
    if entry.producer_id >= 0:
        offsets.apply_in_transaction(state, offset, entry_, entry.producer_id)
    elif isinstance(entry_.key, GroupMetadataKey):
        _apply_group(state, entry_)
    else:
        offsets.APPLICATIONS[type(entry_.key)](state, offset, entry_, 0)


def _apply_group(state: State, entry_: Entry) -> None:
    group_id, value = entry_.key.group, entry_.value
    if value is None:
        state.groups.pop(group_id, None)
        return
    topics = tuple(value.protocol.split(",")) if value.protocol else ()
    members = bool(value.generation)
    state.groups[group_id] = FakeGroup(
        group_id, members=members, topics=topics, since_ms=None if members else value.current_state_timestamp
    )


def group_record(group_id: str, *, members: bool, topics: Iterable[str] = (), since_ms: int = -1) -> ShardRecord:
    """The record of a FakeGroup."""
    value = GroupMetadataValue("consumer", int(members), ",".join(topics), None, since_ms)
    return to_record(GroupMetadataKey(group_id), value, 3)


# ---- commands of clients --------------------------------------------------------------------------------------------


def caller(api_version: int) -> c.Caller:
    return c.Caller("client", "/127.0.0.1", api_version)


Offsets = dict[tuple[str, int], int]
"""(topic, partition) -> offset"""


def commit(
    group_id: str,
    offsets_: Offsets,
    *,
    version: int = 9,
    generation: int = -1,
    member_id: str = "",
    retention_ms: int = -1,
    metadata: str | None = "",
    epoch: int = -1,
    topic_id: UUID = ZERO_UUID,
) -> c.CommitOffsets:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets_.items():
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, epoch, metadata))
    wire = [OffsetCommitRequestTopic(topic, topic_id, partitions) for topic, partitions in topics.items()]
    request = OffsetCommitRequest(group_id, generation, member_id, None, retention_ms, wire)
    return c.CommitOffsets(request, caller(version))


def commit_in_transaction(
    producer_id: int,
    group_id: str,
    offsets_: Offsets,
    *,
    epoch: int = 0,
    version: int = 5,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "",
    topic_id: UUID = ZERO_UUID,
) -> c.CommitOffsetsInTransaction:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets_.items():
        topics.setdefault(topic, []).append(TxnOffsetCommitRequestPartition(partition, offset, -1, metadata))
    wire = [TxnOffsetCommitRequestTopic(topic, topic_id, partitions) for topic, partitions in topics.items()]
    request = TxnOffsetCommitRequest("txn", group_id, producer_id, epoch, generation, member_id, None, wire)
    return c.CommitOffsetsInTransaction(request, caller(version))


def fetch(
    group_id: str,
    *places: tuple[str, int],
    stable: bool = False,
    topic_id: UUID = ZERO_UUID,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> c.FetchOffsets:
    """Fetch the offsets of `places`, or of all partitions if none are given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    wire = [OffsetFetchRequestTopics(topic, topic_id, partitions) for topic, partitions in topics.items()]
    request = OffsetFetchRequestGroup(group_id, member_id, member_epoch, wire if places else None)
    return c.FetchOffsets(request, stable, caller(9))


def delete(group_id: str, *places: tuple[str, int]) -> c.DeleteOffsets:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
    wire = [OffsetDeleteRequestTopic(topic, partitions) for topic, partitions in topics.items()]
    return c.DeleteOffsets(OffsetDeleteRequest(group_id, wire))


def errors(reply: Any) -> dict[tuple[str, int], str] | str:
    """Return the error name per partition of a reply."""
    if isinstance(reply, str):
        return reply
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code).name
        for topic in reply.topics
        for partition in topic.partitions
    }


def fetched(reply: Any) -> dict[tuple[str, int], int | str] | str:
    """Return the offset or the error name per partition of an OffsetFetch reply."""
    if isinstance(reply, str):
        return reply
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code).name
        if partition.error_code
        else partition.committed_offset
        for topic in reply.topics
        for partition in topic.partitions
    }


def offset_of(rig: OffsetsRig, group_id: str, topic: str, partition: int) -> int | None:
    """Return the committed offset, or None."""
    stored: StoredOffset | None = rig.store.get(group_id, topic, partition)
    return None if stored is None else stored.offset
