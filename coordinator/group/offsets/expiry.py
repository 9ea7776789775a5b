"""Expiration of offsets, and deletion of empty groups without offsets (KIP-211).

A sweep visits all groups in slices, so that a request waits for at most one slice. The slices write the records. The
sweep writes none, and starts the timer of the next sweep even if the log refuses a slice.
"""

from itertools import islice
from typing import Final

from odradek.coordinator.group.offset_store import NO_EXPIRE_MS, unpack
from odradek.coordinator.group.offsets.records import Batch, tombstone
from odradek.coordinator.group.state import Group, State
from odradek.frozen import frozen_dataclass
from odradek.runtime.shard import Decision, ExpiryCommand, Timer

CHECKS_PER_SLICE_MAX: Final = 500
"""Maximum offsets and groups that one slice checks: a few milliseconds of the event loop."""
_SWEEP: Final = "sweep for expired offsets"
_SLICE: Final = "slice of the sweep for expired offsets"


@frozen_dataclass(frozen=True, slots=True)
class SweepOffsets(ExpiryCommand):
    """Timer: start a sweep over all groups."""


@frozen_dataclass(frozen=True, slots=True)
class ExpireOffsets(ExpiryCommand):
    """Timer: continue the sweep at `group_ids[position]`, after the first `kept` offsets of that group."""

    group_ids: tuple[str, ...]
    position: int = 0
    kept: int = 0


def next_sweep(state: State) -> Timer:
    """Return the timer that starts the next sweep."""
    interval_ms = state.configs.broker().offsets_retention_check_interval_ms
    return Timer(_SWEEP, command=SweepOffsets(), delay_ms=interval_ms)


def decide_sweep(state: State, command: SweepOffsets, now_ms: int) -> Decision[None]:
    """Start a sweep. It replaces the pending slice of the previous sweep, whose remaining groups it visits, too."""
    return Decision(None, timers=(next_sweep(state), _slice(ExpireOffsets(group_ids(state)))))


def group_ids(state: State) -> tuple[str, ...]:
    """Return the ids of all groups, including those that have only committed or pending offsets."""
    return tuple(dict.fromkeys((*state.groups, *state.offsets.groups, *state.offsets.open)))


def decide_expire(state: State, command: ExpireOffsets, now_ms: int) -> Decision[None]:
    """Process one slice. It checks the current offsets and members, which can have changed since the last slice."""
    work = _Slice(state, now_ms)
    kept = command.kept
    for position in range(command.position, len(command.group_ids)):
        kept_until = work.expire(command.group_ids[position], kept)
        if kept_until is not None:
            rest = ExpireOffsets(command.group_ids, position, kept_until)
            return Decision(None, tuple(work.batch.records), timers=(_slice(rest),))
        kept = 0
    return Decision(None, tuple(work.batch.records))


class _Slice:
    def __init__(self, state: State, now_ms: int) -> None:
        config = state.configs.broker()
        self.batch = Batch(config.record_batch_bytes_max)
        self._state = state
        self._now_ms = now_ms
        self._retention_ms = config.offsets_retention_ms
        self._checks_left = CHECKS_PER_SLICE_MAX

    def expire(self, group_id: str, skip: int) -> int | None:
        """Add tombstones for the expired offsets of a group, and for the group itself if it has no offset left.

        The first `skip` offsets were checked by an earlier slice and stay. Return None if the group is done. If the
        slice is full, return the number of offsets that were checked and stay.
        """
        store, group = self._state.offsets, self._state.groups.get(group_id)
        if self._checks_left <= 0:
            return skip
        kept = expired = 0
        for topic, partitions in store.topics(group_id).items():
            start = min(max(skip - kept, 0), len(partitions))
            kept += start
            if group is not None and group.is_subscribed_to(topic):
                kept += len(partitions) - start
                continue
            for partition, packed in islice(partitions.items(), start, None):
                if self._checks_left <= 0:
                    return kept
                self._checks_left -= 1
                # A tombstone would also remove the pending offset of an open transaction.
                if not self._is_expired(group, packed) or store.is_pending(group_id, topic, partition):
                    kept += 1
                elif self.batch.add((tombstone((group_id, topic, partition)),)):
                    expired += 1
                else:
                    return kept
        self._checks_left -= 1  # counted after the offsets, so that each slice makes progress
        return None if self._delete_if_empty(group, group_id, expired) else kept

    def _is_expired(self, group: Group | None, packed: bytes) -> bool:
        offset = unpack(packed)
        since_ms = offset.commit_ms if group is None else group.offsets_expire_from_ms(offset.commit_ms)
        if since_ms is None:
            return False
        if offset.expire_ms != NO_EXPIRE_MS:
            return self._now_ms >= offset.expire_ms
        return self._now_ms - since_ms >= self._retention_ms

    def _delete_if_empty(self, group: Group | None, group_id: str, expired: int) -> bool:
        """Add tombstones for an empty group whose offsets have all expired.

        Return False if they do not fit the batch.
        """
        store = self._state.offsets
        if group is None or not group.is_empty or store.has_pending(group_id) or store.count_of(group_id) != expired:
            return True
        return self.batch.add(group.tombstones())


def _slice(command: ExpireOffsets) -> Timer:
    return Timer(_SLICE, command=command, delay_ms=0)
