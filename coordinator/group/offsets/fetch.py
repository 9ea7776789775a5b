"""OffsetFetch for one group.

A read is decided in the order of the commits, and its response waits until all earlier records are committed. The
response has the newest offsets, and none of them can be lost in a fail-over, with or without `require_stable`.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.coordinator.group.commands import FetchOffsets
from odradek.coordinator.group.offset_store import ZERO_TOPIC_ID, OffsetStore, unpack
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.special_values import NO_COMMITTED_OFFSET, NO_LEADER_EPOCH
from odradek.runtime.shard import Decision

FETCHED_OFFSET_BYTES: Final = 800
"""Maximum bytes of one offset in an OffsetFetch response, in addition to FETCHED_COPIES of its metadata.

They are the object of the response to this version and of the latest version, and its encoded form.
"""
FETCHED_TOPIC_BYTES: Final = 3_000
"""Maximum bytes of one topic in an OffsetFetch response: its objects, and copies of a name of 249 characters."""
FETCHED_COPIES: Final = 6
"""Maximum memory of the metadata of an offset, per byte of its UTF-8 form: the text, and two encoded copies.

A text has four bytes per character if one character is above U+FFFF.
"""
_NO_PARTITIONS: Final[Mapping[int, bytes]] = {}


def decide_fetch(state: State, command: FetchOffsets, now_ms: int) -> Decision[OffsetFetchResponseGroup]:
    """Return the requested offsets, or all committed ones.

    An unknown group has none. Raise Refusal if a check fails.
    """
    request, store = command.request, state.offsets
    known = _group_exists(state, command)
    offsets = store.topics(request.group_id) if known else {}
    topics: list[OffsetFetchResponseTopics] = []
    if request.topics is None:
        for name, partitions in offsets.items():
            responses = [
                _response(store, command, name, partition, packed, ZERO_TOPIC_ID)
                for partition, packed in partitions.items()
            ]
            topics.append(OffsetFetchResponseTopics(name, ZERO_UUID, responses))
    else:
        for topic in request.topics:
            partitions = offsets.get(topic.name, _NO_PARTITIONS)
            topic_id = _bytes_of(topic.topic_id)
            responses = [
                _response(store, command, topic.name, partition, partitions.get(partition), topic_id)
                for partition in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, responses))
    return Decision(OffsetFetchResponseGroup(request.group_id, topics))


def fetched_bytes_max(state: State, group_id: str) -> int:
    """Return the maximum memory that all offsets of a group take, with their encoded form, in bytes."""
    store = state.offsets
    count = store.count_of(group_id)
    metadata_bytes = min(store.metadata_bytes, count * state.configs.broker().offset_metadata_max_bytes)
    return (
        FETCHED_OFFSET_BYTES * count
        + FETCHED_TOPIC_BYTES * len(store.topics(group_id))
        + FETCHED_COPIES * metadata_bytes
    )


def _group_exists(state: State, command: FetchOffsets) -> bool:
    request = command.request
    group = state.groups.get(request.group_id)
    if group is None:
        return False
    try:
        group.check_offset_fetch(request.member_id, request.member_epoch)
    except Refusal as refusal:
        if refusal.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
    return True


def _response(
    store: OffsetStore, command: FetchOffsets, topic: str, partition: int, packed: bytes | None, topic_id: bytes
) -> OffsetFetchResponsePartitions:
    if command.require_stable and store.is_pending(command.request.group_id, topic, partition):
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return OffsetFetchResponsePartitions(partition, NO_COMMITTED_OFFSET, NO_LEADER_EPOCH, "", unstable)
    if packed is not None:
        stored = unpack(packed)
        # Offsets of a deleted topic are not offsets of a new topic with the same name.
        if stored.topic_id == topic_id or ZERO_TOPIC_ID in {stored.topic_id, topic_id}:
            return OffsetFetchResponsePartitions(partition, stored.offset, stored.leader_epoch, stored.metadata)
    return OffsetFetchResponsePartitions(partition, NO_COMMITTED_OFFSET, NO_LEADER_EPOCH, "")


def _bytes_of(topic_id: UUID) -> bytes:
    return ZERO_TOPIC_ID if topic_id is ZERO_UUID else topic_id.bytes
