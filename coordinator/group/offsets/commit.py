"""OffsetCommit and TxnOffsetCommit.

Who may commit is asked of the group. A group that nobody knows yet may be committed for by clients that are no members
(generation below 0): the record makes it a "simple" group.
"""

from collections.abc import Callable
from typing import Final

from odradek.coordinator.group.commands import CommitOffsets, CommitOffsetsInTransaction
from odradek.coordinator.group.offset_store import NEVER_MS, ZERO_TOPIC_ID, Place, metadata_bytes_of
from odradek.coordinator.group.offsets.records import commit_record
from odradek.coordinator.group.state import Group, GroupKind, State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.runtime.shard import Decision, ShardRecord

OFFSETS_MAX: Final = 200_000
"""Offsets in one partition of `__consumer_offsets`, pending ones included: whoever floods it is told
INVALID_COMMIT_OFFSET_SIZE for places that have none yet."""
METADATA_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all those offsets may say beside themselves; more than there was is refused in the same words."""

DEFAULT_RETENTION: Final = -1
GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""Versions of OffsetCommit before say ILLEGAL_GENERATION of a group that does not exist."""
_INT64_MAX: Final = 2**63 - 1
_E: Final = ErrorCode

Known = Callable[[Place], bytes | None]
"""The offset that is there already, packed."""


def decide_commit(state: State, command: CommitOffsets, now_ms: int) -> Decision[OffsetCommitResponse]:
    """OffsetCommit. The members of a classic group stay alive by it."""
    request, caller = command.request, command.caller
    group_id, member_id, generation = request.group_id, request.member_id, request.generation_id_or_member_epoch
    group = state.groups.get(group_id)
    if group is None:
        unknown = _E.GROUP_ID_NOT_FOUND if caller.api_version >= GROUP_ID_NOT_FOUND_SINCE else _E.ILLEGAL_GENERATION
        _check_new_group(state, group_id, generation, unknown)
    else:
        group.check_offset_commit(
            member_id, request.group_instance_id, generation, in_transaction=False, api_version=caller.api_version
        )
    expire_ms = _expire_ms(request.retention_time_ms, now_ms)
    capacity = _Capacity(state, state.offsets.packed)
    records: list[ShardRecord] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        responses: list[OffsetCommitResponsePartition] = []
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, responses))
        for partition in topic.partitions:
            place = (group_id, topic.name, partition.partition_index)
            error = capacity.check(place, partition.committed_metadata)
            if error is _E.NONE:
                _check_partition(group, member_id, generation, topic.topic_id.bytes, place)
                record = commit_record(
                    place,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                    now_ms=now_ms,
                    expire_ms=expire_ms,
                    topic_id=topic.topic_id,
                )
                records.append(record)
            responses.append(OffsetCommitResponsePartition(partition.partition_index, error))
    timers = () if group is None else group.commit_timers(member_id)
    return Decision(OffsetCommitResponse(topics=topics), tuple(records), timers=timers)


def decide_commit_in_transaction(
    state: State, command: CommitOffsetsInTransaction, now_ms: int
) -> Decision[TxnOffsetCommitResponse]:
    """TxnOffsetCommit: the same, pending until the marker of the transaction (KIP-447).

    As in Kafka these records have no topic id, and no retention of their own.
    """
    request, caller = command.request, command.caller
    group_id, member_id, generation = request.group_id, request.member_id, request.generation_id
    try:
        group = state.groups.get(group_id)
        if group is None:
            _check_new_group(state, group_id, generation, _E.ILLEGAL_GENERATION)
        else:
            group.check_offset_commit(
                member_id, request.group_instance_id, generation, in_transaction=True, api_version=caller.api_version
            )
        pending = state.offsets.pending.get(request.producer_id, {})
        capacity = _Capacity(state, pending.get, state.offsets.packed)
        records: list[ShardRecord] = []
        topics: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            responses: list[TxnOffsetCommitResponsePartition] = []
            topics.append(TxnOffsetCommitResponseTopic(topic.name, responses))
            for partition in topic.partitions:
                place = (group_id, topic.name, partition.partition_index)
                error = capacity.check(place, partition.committed_metadata)
                if error is _E.NONE:
                    _check_partition(group, member_id, generation, _topic_id(state, group, topic.name), place)
                    record = commit_record(
                        place,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        now_ms=now_ms,
                        producer_id=request.producer_id,
                        producer_epoch=request.producer_epoch,
                    )
                    records.append(record)
                responses.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
    except Refusal as refusal:
        if refusal.error is _E.STALE_MEMBER_EPOCH:  # no version of TxnOffsetCommit that is served knows it
            raise Refusal(_E.ILLEGAL_GENERATION) from refusal
        raise
    return Decision(TxnOffsetCommitResponse(topics=topics), tuple(records))


class _Capacity:
    """What one offset may be refused for, whoever commits it."""

    def __init__(self, state: State, known: Known, kept: Known = lambda _: None) -> None:
        """`known`: what the offset replaces. `kept`: what stays beside it until its transaction ends; such places may have as much
        again, since a transaction that cannot commit its offsets is lost, whoever has filled the partition.
        """
        self._metadata_max = state.configs.broker().offset_metadata_max_bytes
        self._left = OFFSETS_MAX - state.offsets.count - state.offsets.pending_count
        self._metadata_left = METADATA_BYTES_MAX - state.offsets.metadata_bytes
        self._known = known
        self._kept = kept

    def check(self, place: Place, metadata: str | None) -> ErrorCode:
        if metadata and is_too_large(metadata, self._metadata_max):
            return _E.OFFSET_METADATA_TOO_LARGE
        before = self._known(place)
        longer = 0
        if metadata:
            longer = len(metadata.encode()) - (0 if before is None else metadata_bytes_of(before))
        spare = before is None and self._kept(place) is not None
        left = self._left + OFFSETS_MAX * spare
        if (before is None and left <= 0) or longer > max(self._metadata_left + METADATA_BYTES_MAX * spare, 0):
            return _E.INVALID_COMMIT_OFFSET_SIZE
        self._left -= before is None
        self._metadata_left -= max(longer, 0)
        return _E.NONE


def is_too_large(metadata: str, max_: int) -> bool:
    """Kafka's `offset.metadata.max.bytes` counts the units of UTF-16."""
    if len(metadata) > max_:
        return True
    return not metadata.isascii() and len(metadata.encode("utf-16-le")) // 2 > max_


def _check_new_group(state: State, group_id: str, generation: int, unknown: ErrorCode) -> None:
    if generation >= 0:
        raise Refusal(unknown)
    if not state.has_capacity_for(group_id):
        raise Refusal(_E.INVALID_COMMIT_OFFSET_SIZE)


def _check_partition(group: Group | None, member_id: str, generation: int, topic_id: bytes, place: Place) -> None:
    if group is not None and group.kind is GroupKind.CONSUMER:
        _, topic, partition = place
        group.check_offset_commit_of(member_id, generation, topic_id, topic, partition)


def _topic_id(state: State, group: Group | None, name: str) -> bytes:
    if group is None or group.kind is not GroupKind.CONSUMER:
        return ZERO_TOPIC_ID
    topic = state.topics.by_name(name)
    return ZERO_TOPIC_ID if topic is None else topic.topic_id


def _expire_ms(retention_ms: int, now_ms: int) -> int:
    """The retention is the client's word: what it adds up to must fit the record and must not read as "none"."""
    if retention_ms == DEFAULT_RETENTION:
        return NEVER_MS
    return min(max(now_ms + retention_ms, 0), _INT64_MAX)
