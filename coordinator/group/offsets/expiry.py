"""Offsets that have outlived their retention, and groups that are left with nothing (KIP-211).

A sweep goes over all groups in slices, so that a request between two of them waits for one slice only. A slice carries
the records; the sweep itself writes none, and sets the next sweep whatever the log says to the slices.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from odradek.coordinator.group.offset_store import NEVER_MS, unpacked
from odradek.coordinator.group.offsets.records import Batch, tombstone
from odradek.coordinator.group.state import Group, State
from odradek.runtime.shard import Decision, Timer

EXAMINED_MAX: Final = 500
"""Offsets and groups that one slice looks at."""
_SWEEP: Final = "sweep for expired offsets"
_SLICE: Final = "slice of the sweep for expired offsets"


@dataclass(frozen=True, slots=True)
class SweepOffsets:
    """Timer: begin a sweep."""


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Timer: go on with the sweep at `group_ids[at]`, `kept` of whose offsets have been looked at and stay."""

    group_ids: tuple[str, ...]
    at: int = 0
    kept: int = 0


def next_sweep(state: State) -> Timer:
    """The timer of the next sweep."""
    interval_ms = state.configs.broker().offsets_retention_check_interval_ms
    return Timer(_SWEEP, command=SweepOffsets(), delay_ms=interval_ms)


def decide_sweep(state: State, command: SweepOffsets, now_ms: int) -> Decision[None]:
    """A slice that is left over from the sweep before is replaced: the new sweep will come to what it had to do."""
    return Decision(None, timers=(next_sweep(state), _slice(ExpireOffsets(group_ids(state)))))


def group_ids(state: State) -> tuple[str, ...]:
    """Every group that is known or has an offset."""
    return tuple(dict.fromkeys((*state.groups, *state.offsets.groups, *state.offsets.open)))


def decide_expire(state: State, command: ExpireOffsets, now_ms: int) -> Decision[None]:
    """One slice. Everything is judged anew: since the last one offsets and members may have come."""
    work = _Slice(state, now_ms)
    kept = command.kept
    for at in range(command.at, len(command.group_ids)):
        stopped_at = work.expire(command.group_ids[at], kept)
        if stopped_at is not None:
            more = ExpireOffsets(command.group_ids, at, stopped_at)
            return Decision(None, tuple(work.batch.records), timers=(_slice(more),))
        kept = 0
    return Decision(None, tuple(work.batch.records))


class _Slice:
    def __init__(self, state: State, now_ms: int) -> None:
        config = state.configs.broker()
        self.batch = Batch(config.record_batch_bytes_max)
        self._state = state
        self._now_ms = now_ms
        self._retention_ms = config.offsets_retention_ms
        self._left = EXAMINED_MAX

    def expire(self, group_id: str, after: int) -> int | None:
        """Tombstones for what has expired of a group, beginning behind the first `after` offsets, and for the group
        itself if nothing is left. Returns None when done, or how many offsets of it stay when the slice is full.
        """
        store, group = self._state.offsets, self._state.groups.get(group_id)
        if self._left <= 0:
            return after
        kept = gone = 0
        for topic, partitions in store.topics(group_id).items():
            start = min(max(after - kept, 0), len(partitions))
            kept += start
            if group is not None and group.is_subscribed_to(topic):
                kept += len(partitions) - start
                continue
            for partition, packed in islice(partitions.items(), start, None):
                if self._left <= 0:
                    return kept
                self._left -= 1
                # What is pending will be the offset of this place, or has been promised to be: neither may go.
                if not self._is_expired(group, packed) or store.is_pending(group_id, topic, partition):
                    kept += 1
                elif self.batch.add((tombstone((group_id, topic, partition)),)):
                    gone += 1
                else:
                    return kept
        self._left -= 1  # the group itself: not before its offsets, so that every slice comes on
        return None if self._drop(group, group_id, gone) else kept

    def _is_expired(self, group: Group | None, packed: bytes) -> bool:
        offset = unpacked(packed)
        since_ms = offset.commit_ms if group is None else group.offsets_expire_from_ms(offset.commit_ms)
        if since_ms is None:
            return False
        if offset.expire_ms != NEVER_MS:
            return self._now_ms >= offset.expire_ms
        return self._now_ms - since_ms >= self._retention_ms

    def _drop(self, group: Group | None, group_id: str, gone: int) -> bool:
        """The group goes with its last offset. False when that does not fit the batch any more."""
        store = self._state.offsets
        if group is None or not group.is_empty or store.has_pending(group_id) or store.count_of(group_id) != gone:
            return True
        return self.batch.add(group.tombstones())


def _slice(command: ExpireOffsets) -> Timer:
    return Timer(_SLICE, command=command, delay_ms=0)
