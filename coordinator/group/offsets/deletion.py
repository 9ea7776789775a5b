"""OffsetDelete, DeleteGroups, and the offsets of topics that were deleted.

What an open transaction has promised is not taken from it by a request: its commit would then write the output and lose
the offset of the input. The client may come again when the transaction has ended, which its time-out sees to. (Kafka
drops the pending offset.) A topic that is gone has no input to lose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.coordinator.group.commands import DeletedTopic, DeleteGroup, DeleteOffsets, TopicsDeleted
from odradek.coordinator.group.offset_store import ZERO_TOPIC_ID, OffsetStore, Place, record_offset_of, unpacked
from odradek.coordinator.group.offsets.expiry import EXAMINED_MAX, group_ids
from odradek.coordinator.group.offsets.records import Batch, tombstone
from odradek.coordinator.group.state import Group, State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.runtime.shard import Again, Decision, ShardRecord, Timer

_E: Final = ErrorCode


@dataclass(frozen=True, slots=True)
class ContinueDeletion:
    """Timer: the deletion of a group that was too large for one batch goes on when what it has written is committed."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DropTopics:
    """Timer: go on at `ids[at]`. Offsets of records from `before` on are of a topic that came later."""

    topics: tuple[DeletedTopic, ...]
    before: int
    ids: tuple[str, ...]
    at: int = 0


def decide_delete_offsets(state: State, command: DeleteOffsets, now_ms: int) -> Decision[OffsetDeleteResponse]:
    """OffsetDelete. Raises Refusal(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
    group_id, store = command.request.group_id, state.offsets
    group = _existing(state, group_id)
    group.check_offset_delete()
    records: dict[Place, ShardRecord] = {}
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in command.request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        responses: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            place = (group_id, topic.name, partition.partition_index)
            error = _E.NONE
            if subscribed:
                error = _E.GROUP_SUBSCRIBED_TO_TOPIC
            elif store.is_pending(*place):
                error = _E.UNSTABLE_OFFSET_COMMIT
            elif store.packed(place) is not None:
                records[place] = tombstone(place)
            responses.append(OffsetDeleteResponsePartition(partition.partition_index, error))
        topics.append(OffsetDeleteResponseTopic(topic.name, responses))
    return Decision(OffsetDeleteResponse(topics=topics), tuple(records.values()))


def decide_delete_group(state: State, command: DeleteGroup, now_ms: int) -> Decision[None]:
    """One group of DeleteGroups; its tombstone stands in one batch with the last of its offsets'.

    Raises Refusal(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP).
    """
    group_id, store = command.group_id, state.offsets
    group = _existing(state, group_id)
    group.check_delete()
    if store.has_pending(group_id):
        raise Refusal(_E.NON_EMPTY_GROUP)
    batch = Batch(state.configs.broker().record_batch_bytes_max)
    left = EXAMINED_MAX
    for place in _places(store, group_id):
        left -= 1
        if left < 0 or not batch.add((tombstone(place),)):
            return _later(group_id, batch)
    if not batch.add(group.tombstones()):
        return _later(group_id, batch)
    return Decision(None, tuple(batch.records))


def decide_continue_deletion(state: State, command: ContinueDeletion, now_ms: int) -> Decision[None]:
    """Wakes the command that waits."""
    return Decision(None, keys=(_key(command.group_id),))


def decide_topics_deleted(state: State, command: TopicsDeleted, now_ms: int) -> Decision[None]:
    """In slices, like the sweep."""
    return _drop_later(DropTopics(command.topics, state.offsets.end, group_ids(state)))


def decide_drop_topics(state: State, command: DropTopics, now_ms: int) -> Decision[None]:
    """One slice of it."""
    batch = Batch(state.configs.broker().record_batch_bytes_max)
    left = EXAMINED_MAX
    for at in range(command.at, len(command.ids)):
        for place in _dropped(state.offsets, command, command.ids[at]):
            left -= 1
            if not batch.add((tombstone(place),)):
                return _drop_later(DropTopics(command.topics, command.before, command.ids, at), batch)
        left -= 1
        if left <= 0:
            return _drop_later(DropTopics(command.topics, command.before, command.ids, at + 1), batch)
    return Decision(None, tuple(batch.records))


def _existing(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise Refusal(_E.GROUP_ID_NOT_FOUND)
    return group


def _places(store: OffsetStore, group_id: str) -> Iterator[Place]:
    for topic, partitions in store.topics(group_id).items():
        for partition in partitions:
            yield group_id, topic, partition


def _later(group_id: str, batch: Batch) -> Decision[None]:
    """These records, then (in a turn of the loop of its own, when they are committed) the same command again."""
    again = Again(_key(group_id), Refusal(_E.COORDINATOR_LOAD_IN_PROGRESS))
    timer = Timer(_key(group_id), command=ContinueDeletion(group_id), delay_ms=0)
    return Decision(again, tuple(batch.records), timers=(timer,))


def _key(group_id: str) -> tuple[str, str]:
    return "delete group", group_id


def _drop_later(command: DropTopics, batch: Batch | None = None) -> Decision[None]:
    timer = Timer(("topics deleted", command.topics), command=command, delay_ms=0)
    return Decision(None, () if batch is None else tuple(batch.records), timers=(timer,))


def _dropped(store: OffsetStore, command: DropTopics, group_id: str) -> Iterator[Place]:
    """The places of a group whose offset, or all that is pending there, is of a deleted topic."""
    for topic in command.topics:
        committed = store.topics(group_id).get(topic.name, {})
        stale = {partition: None for partition, packed in committed.items() if _is_of(packed, topic, command.before)}
        for name, partition in store.open.get(group_id, ()):
            if name == topic.name:
                stale[partition] = None
        for partition in stale:
            place = (group_id, topic.name, partition)
            # A tombstone takes everything of its place along, so what is pending there must be of that topic too.
            if all(_is_of(packed, topic, command.before) for packed in _pending(store, place)):
                yield place


def _pending(store: OffsetStore, place: Place) -> Iterator[bytes]:
    group_id, topic, partition = place
    for producer_id in store.open.get(group_id, {}).get((topic, partition), ()):
        yield store.pending[producer_id][place]


def _is_of(packed: bytes, topic: DeletedTopic, before: int) -> bool:
    return record_offset_of(packed) < before and unpacked(packed).topic_id in {ZERO_TOPIC_ID, topic.topic_id}
