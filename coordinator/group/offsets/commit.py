"""OffsetCommit and TxnOffsetCommit.

The group checks its members. Clients that are not members (generation below 0) can commit for a group that does not
exist. The record creates a "simple" group, which has offsets but no members.
"""

from collections.abc import Callable
from typing import Final

from odradek.coordinator.group.commands import CommitOffsets, CommitOffsetsInTransaction
from odradek.coordinator.group.offset_store import NO_EXPIRE_MS, OffsetKey, metadata_bytes_of
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
from odradek.protocol.primitives import INT64_MAX
from odradek.runtime.shard import Decision, ShardRecord

OFFSETS_MAX: Final = 200_000
"""Maximum offsets in one partition of `__consumer_offsets`, including pending offsets. Kafka has no limit."""
METADATA_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of metadata of all offsets in one partition of `__consumer_offsets`. Kafka has no limit."""

DEFAULT_RETENTION: Final = -1
GROUP_ID_NOT_FOUND_MIN: Final = 9
"""First version of OffsetCommit with GROUP_ID_NOT_FOUND. Earlier ones use ILLEGAL_GENERATION for an unknown group."""
TXN_TOPIC_IDS_MIN: Final = 6
"""First version of TxnOffsetCommit with topic ids, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).

Earlier ones use ILLEGAL_GENERATION for an unknown group or a stale member epoch.
"""
_E: Final = ErrorCode

FindOffset = Callable[[OffsetKey], bytes | None]
"""Return the packed offset of a key, or None."""


def decide_commit(state: State, command: CommitOffsets, now_ms: int) -> Decision[OffsetCommitResponse]:
    """Decide on OffsetCommit. It extends the session of a member of a classic group."""
    request, caller = command.request, command.caller
    group_id, member_id, generation = request.group_id, request.member_id, request.generation_id_or_member_epoch
    group = state.groups.get(group_id)
    if group is None:
        unknown = _E.GROUP_ID_NOT_FOUND if caller.api_version >= GROUP_ID_NOT_FOUND_MIN else _E.ILLEGAL_GENERATION
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
            offset_key = (group_id, topic.name, partition.partition_index)
            error = capacity.check(offset_key, partition.committed_metadata)
            if error is _E.NONE:
                _check_partition(group, member_id, generation, topic.topic_id.bytes, offset_key)
                record = commit_record(
                    offset_key,
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
    """Decide on TxnOffsetCommit: the offsets are pending until the marker of the transaction (KIP-447).

    As in Kafka, these records have no retention.
    """
    request, caller = command.request, command.caller
    group_id, member_id, generation = request.group_id, request.member_id, request.generation_id_or_member_epoch
    try:
        group = state.groups.get(group_id)
        if group is None:
            by_id = caller.api_version >= TXN_TOPIC_IDS_MIN
            _check_new_group(state, group_id, generation, _E.GROUP_ID_NOT_FOUND if by_id else _E.ILLEGAL_GENERATION)
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
            topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, responses))
            for partition in topic.partitions:
                offset_key = (group_id, topic.name, partition.partition_index)
                error = capacity.check(offset_key, partition.committed_metadata)
                if error is _E.NONE:
                    _check_partition(group, member_id, generation, topic.topic_id.bytes, offset_key)
                    record = commit_record(
                        offset_key,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        now_ms=now_ms,
                        producer_id=request.producer_id,
                        producer_epoch=request.producer_epoch,
                        topic_id=topic.topic_id,
                    )
                    records.append(record)
                responses.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
    except Refusal as refusal:
        if refusal.error is _E.STALE_MEMBER_EPOCH and caller.api_version < TXN_TOPIC_IDS_MIN:
            raise Refusal(_E.ILLEGAL_GENERATION) from refusal
        raise
    return Decision(TxnOffsetCommitResponse(topics=topics), tuple(records))


class _Capacity:
    """Capacity checks of the offsets of one request."""

    def __init__(self, state: State, find_replaced: FindOffset, find_kept: FindOffset = lambda _: None) -> None:
        """`find_replaced` finds the offset that a commit replaces, `find_kept` a committed offset that stays beside it.

        A key with a committed offset may exceed each limit by as much again. Otherwise a full partition would abort
        transactions that only advance existing offsets.
        """
        self._metadata_max = state.configs.broker().offset_metadata_max_bytes
        self._count_left = OFFSETS_MAX - state.offsets.count - state.offsets.pending_count
        self._metadata_left = METADATA_BYTES_MAX - state.offsets.metadata_bytes
        self._find_replaced = find_replaced
        self._find_kept = find_kept

    def check(self, offset_key: OffsetKey, metadata: str | None) -> ErrorCode:
        """Return the error for one offset, or NONE after reserving its capacity."""
        if metadata and is_too_large(metadata, self._metadata_max):
            return _E.OFFSET_METADATA_TOO_LARGE
        replaced = self._find_replaced(offset_key)
        growth = 0
        if metadata:
            growth = len(metadata.encode()) - (0 if replaced is None else metadata_bytes_of(replaced))
        may_exceed = replaced is None and self._find_kept(offset_key) is not None
        count_left = self._count_left + OFFSETS_MAX * may_exceed
        metadata_left = self._metadata_left + METADATA_BYTES_MAX * may_exceed
        if (replaced is None and count_left <= 0) or growth > max(metadata_left, 0):
            return _E.INVALID_COMMIT_OFFSET_SIZE
        self._count_left -= replaced is None
        self._metadata_left -= max(growth, 0)
        return _E.NONE


def is_too_large(metadata: str, max_: int) -> bool:
    """Return True if `metadata` has more than `max_` UTF-16 code units, the unit of `offset.metadata.max.bytes`."""
    if len(metadata) > max_:
        return True
    return not metadata.isascii() and len(metadata.encode("utf-16-le")) // 2 > max_


def _check_new_group(state: State, group_id: str, generation: int, unknown: ErrorCode) -> None:
    if generation >= 0:
        raise Refusal(unknown)
    if not state.has_capacity_for(group_id):
        raise Refusal(_E.INVALID_COMMIT_OFFSET_SIZE)


def _check_partition(
    group: Group | None, member_id: str, generation: int, topic_id: bytes, offset_key: OffsetKey
) -> None:
    if group is not None and group.kind is GroupKind.CONSUMER:
        _, topic, partition = offset_key
        group.check_partition_commit(member_id, generation, topic_id, topic, partition)


def _expire_ms(retention_ms: int, now_ms: int) -> int:
    """Return when the offset expires.

    The client chose the retention, so the sum is limited to the range of the field.
    """
    if retention_ms == DEFAULT_RETENTION:
        return NO_EXPIRE_MS
    return min(max(now_ms + retention_ms, 0), INT64_MAX)
