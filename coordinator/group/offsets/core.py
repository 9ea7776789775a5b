"""The part of the group core for offsets (commit, fetch, deletion, expiration) and for ListGroups."""

from typing import Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic.state import simple_group
from odradek.coordinator.group.offsets.commit import decide_commit, decide_commit_in_transaction
from odradek.coordinator.group.offsets.deletion import (
    ContinueDeletion,
    DropTopics,
    decide_continue_deletion,
    decide_delete_group,
    decide_delete_offsets,
    decide_drop_topics,
    decide_topics_deleted,
)
from odradek.coordinator.group.offsets.expiry import (
    ExpireOffsets,
    SweepOffsets,
    decide_expire,
    decide_sweep,
    next_sweep,
)
from odradek.coordinator.group.offsets.fetch import decide_fetch
from odradek.coordinator.group.offsets.listing import decide_list
from odradek.coordinator.group.offsets.records import offset_key_of, packed_offset
from odradek.coordinator.group.records import Entry
from odradek.coordinator.group.state import State
from odradek.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey
from odradek.protocol.records.offset_commit import OffsetCommitKey
from odradek.runtime.shard import Loaded, Marker


def apply_offset(state: State, offset: int, entry: Entry, leader_epoch: int) -> None:
    """Apply a commit outside of transactions, or a tombstone."""
    packed = packed_offset(entry, offset)
    offset_key = offset_key_of(entry)
    if packed is None:
        state.offsets.remove(offset_key)
        return
    state.offsets.put(offset_key, packed)
    state.offsets.end = offset + 1
    _ensure_group(state, offset_key[0])


def apply_in_transaction(state: State, offset: int, entry: Entry, producer_id: int) -> None:
    """Apply a commit within a transaction. Transactions in this topic contain only offsets."""
    if not isinstance(entry.key, OffsetCommitKey | LegacyOffsetCommitKey):
        state.skipped_records += 1
        return
    packed = packed_offset(entry, offset)
    offset_key = offset_key_of(entry)
    if packed is None:
        state.offsets.remove(offset_key)
        return
    state.offsets.put_pending(producer_id, offset_key, packed)
    state.offsets.end = offset + 1
    _ensure_group(state, offset_key[0])


def apply_marker(state: State, offset: int, marker: Marker) -> None:
    """Complete a transaction: its offsets become committed offsets, or are dropped."""
    for group_id in state.offsets.complete(marker.producer_id, commit=marker.commit):
        _ensure_group(state, group_id)


def on_loaded(state: State, now_ms: int) -> Loaded:
    """Start the expiration of offsets. The replay of the log has restored the open transactions."""
    return Loaded(timers=(next_sweep(state),))


def _ensure_group(state: State, group_id: str) -> None:
    """Create a simple group for offsets without one.

    A marker can do so, if the group was deleted during the transaction.
    """
    if group_id not in state.groups:
        state.groups[group_id] = simple_group(group_id)


DECISIONS: Final[dict[type[Any], Any]] = {
    c.CommitOffsets: decide_commit,
    c.CommitOffsetsInTransaction: decide_commit_in_transaction,
    c.FetchOffsets: decide_fetch,
    c.DeleteOffsets: decide_delete_offsets,
    c.DeleteGroup: decide_delete_group,
    c.ListGroups: decide_list,
    c.TopicsDeleted: decide_topics_deleted,
    DropTopics: decide_drop_topics,
    ContinueDeletion: decide_continue_deletion,
    SweepOffsets: decide_sweep,
    ExpireOffsets: decide_expire,
}
APPLICATIONS: Final[dict[type[Any], Any]] = {
    OffsetCommitKey: apply_offset,
    LegacyOffsetCommitKey: apply_offset,
}
