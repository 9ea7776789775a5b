"""OffsetDelete, DeleteGroups, and the deletion of the offsets of deleted topics.

A request does not delete offsets of a group that are pending. Otherwise the transaction would commit its output, but
not the offset of its input. The client can retry after the end of the transaction, which `transaction.timeout.ms`
bounds. (Kafka drops the pending offset.) A deleted topic has no input, so its pending offsets are deleted.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from odradek.coordinator.group.commands import DeletedTopic, DeleteGroup, DeleteOffsets, TopicsDeleted
from odradek.coordinator.group.offset_store import ZERO_TOPIC_ID, OffsetKey, OffsetStore, record_offset_of, unpack
from odradek.coordinator.group.offsets.expiry import CHECKS_PER_SLICE_MAX, group_ids
from odradek.coordinator.group.offsets.records import Batch, tombstone
from odradek.coordinator.group.state import Group, State
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.runtime.shard import Decision, RetryAfter, ShardRecord, Timer

_E: Final = ErrorCode


@frozen_dataclass(frozen=True, slots=True)
class ContinueDeletion:
    """Timer: continue the deletion of a group that needs several batches, after the previous batch is committed."""

    group_id: str


@frozen_dataclass(frozen=True, slots=True)
class DropTopics:
    """Timer: continue the deletion of the topics' offsets at `group_ids[position]`.

    Records at or above log offset `end` are of a newer topic with the same name.
    """

    topics: tuple[DeletedTopic, ...]
    end: int
    group_ids: tuple[str, ...]
    position: int = 0


def decide_delete_offsets(state: State, command: DeleteOffsets, now_ms: int) -> Decision[OffsetDeleteResponse]:
    """Decide on OffsetDelete. Raise Refusal(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
    group_id, store = command.request.group_id, state.offsets
    group = _existing_group(state, group_id)
    group.check_offset_delete()
    records: dict[OffsetKey, ShardRecord] = {}
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in command.request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        responses: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            offset_key = (group_id, topic.name, partition.partition_index)
            error = _E.NONE
            if subscribed:
                error = _E.GROUP_SUBSCRIBED_TO_TOPIC
            elif store.is_pending(*offset_key):
                error = _E.UNSTABLE_OFFSET_COMMIT
            elif store.packed(offset_key) is not None:
                records[offset_key] = tombstone(offset_key)
            responses.append(OffsetDeleteResponsePartition(partition.partition_index, error))
        topics.append(OffsetDeleteResponseTopic(topic.name, responses))
    return Decision(OffsetDeleteResponse(topics=topics), tuple(records.values()))


def decide_delete_group(state: State, command: DeleteGroup, now_ms: int) -> Decision[None]:
    """Delete one group and its offsets. The tombstone of the group is in the last batch of tombstones.

    Raise Refusal(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP).
    """
    group_id, store = command.group_id, state.offsets
    group = _existing_group(state, group_id)
    group.check_delete()
    if store.has_pending(group_id):
        raise Refusal(_E.NON_EMPTY_GROUP)
    batch = Batch(state.configs.broker().record_batch_bytes_max)
    checks_left = CHECKS_PER_SLICE_MAX
    for offset_key in _offset_keys(store, group_id):
        checks_left -= 1
        if checks_left < 0 or not batch.add((tombstone(offset_key),)):
            return _delete_later(group_id, batch)
    if not batch.add(group.tombstones()):
        return _delete_later(group_id, batch)
    return Decision(None, tuple(batch.records))


def decide_continue_deletion(state: State, command: ContinueDeletion, now_ms: int) -> Decision[None]:
    """Wake the DeleteGroup command that waits for the previous batch."""
    return Decision(None, keys=(_key(command.group_id),))


def decide_topics_deleted(state: State, command: TopicsDeleted, now_ms: int) -> Decision[None]:
    """Start the deletion of the topics' offsets, in slices."""
    return _continue_dropping(DropTopics(command.topics, state.offsets.end, group_ids(state)))


def decide_drop_topics(state: State, command: DropTopics, now_ms: int) -> Decision[None]:
    """Write the tombstones of one slice."""
    batch = Batch(state.configs.broker().record_batch_bytes_max)
    checks_left = CHECKS_PER_SLICE_MAX
    for position in range(command.position, len(command.group_ids)):
        for offset_key in _dropped_keys(state.offsets, command, command.group_ids[position]):
            checks_left -= 1
            if not batch.add((tombstone(offset_key),)):
                return _continue_dropping(replace(command, position=position), batch)
        checks_left -= 1
        if checks_left <= 0:
            return _continue_dropping(replace(command, position=position + 1), batch)
    return Decision(None, tuple(batch.records))


def _existing_group(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise Refusal(_E.GROUP_ID_NOT_FOUND)
    return group


def _offset_keys(store: OffsetStore, group_id: str) -> Iterator[OffsetKey]:
    for topic, partitions in store.topics(group_id).items():
        for partition in partitions:
            yield group_id, topic, partition


def _delete_later(group_id: str, batch: Batch) -> Decision[None]:
    """Write the collected records, and decide on the DeleteGroup command again when they are committed."""
    retry = RetryAfter(_key(group_id), Refusal(_E.COORDINATOR_LOAD_IN_PROGRESS))
    timer = Timer(_key(group_id), command=ContinueDeletion(group_id), delay_ms=0)
    return Decision(retry, tuple(batch.records), timers=(timer,))


def _key(group_id: str) -> tuple[str, str]:
    return "delete group", group_id


def _continue_dropping(command: DropTopics, batch: Batch | None = None) -> Decision[None]:
    timer = Timer(("topics deleted", command.topics), command=command, delay_ms=0)
    return Decision(None, () if batch is None else tuple(batch.records), timers=(timer,))


def _dropped_keys(store: OffsetStore, command: DropTopics, group_id: str) -> Iterator[OffsetKey]:
    """Yield the keys of a group with a committed or pending offset of a deleted topic."""
    for topic in command.topics:
        committed = store.topics(group_id).get(topic.name, {})
        stale = {partition: None for partition, packed in committed.items() if _is_of(packed, topic, command.end)}
        for name, partition in store.open.get(group_id, ()):
            if name == topic.name:
                stale[partition] = None
        for partition in stale:
            offset_key = (group_id, topic.name, partition)
            # A tombstone also removes pending offsets of its key, so all of them must be of the deleted topic.
            if all(_is_of(packed, topic, command.end) for packed in _pending(store, offset_key)):
                yield offset_key


def _pending(store: OffsetStore, offset_key: OffsetKey) -> Iterator[bytes]:
    group_id, topic, partition = offset_key
    for producer_id in store.open.get(group_id, {}).get((topic, partition), ()):
        yield store.pending[producer_id][offset_key]


def _is_of(packed: bytes, topic: DeletedTopic, end: int) -> bool:
    return record_offset_of(packed) < end and unpack(packed).topic_id in {ZERO_TOPIC_ID, topic.topic_id}
