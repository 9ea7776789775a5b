"""I10 for compacted logs: the rules for records that compaction may remove. Written from Kafka's rules (LogCleaner and
KIP-534), without code of the broker.

The checkers read each log in its original form, even where compaction has removed records on some disks. `Cleaned`
keeps the removed batches, so the other checkers read complete logs. A removal that breaks a rule is a finding here:
- A record may be removed if a later record of its key is stable and committed, or if the record was aborted.
- A tombstone or a marker may be removed if its batch has a delete horizon that has passed. A marker needs in addition
  that no batch of its transaction is left.
- Batches at or above the last stable offset stay. A batch that stays keeps its offsets, producer, sequence and
  contents.
- The last batch of a producer stays, possibly without records: the broker checks the next sequence of the producer
  against it. This rule is not checked in runs in which producers expire.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.sim.checkers.batches import COMMIT, CONTROL, TRANSACTIONAL, Batch, Identity

NO_PRODUCER_ID: Final = -1
DRIFT_MS: Final = 2000
"""Maximum difference between the clocks of two hosts, in milliseconds, in runs without clock steps."""


class Held(Protocol):
    """An original batch, and the part of it that one disk holds now (None: nothing)."""

    batch: Batch
    held: Batch | None


class Cleaned:
    """Batches of one partition that compaction removed or shortened on any host.

    All of them were committed, so every offset has one original batch.
    """

    def __init__(self) -> None:
        self.later: dict[int, int] = {}
        """By offset of a removed record: the offset of the later record of its key."""
        self.expired: dict[int, None] = {}
        """Offsets of tombstones that were removed after their delete horizon, without a later record of their key."""
        self._gone: dict[int, Batch] = {}
        self._shrunk: dict[Identity, Batch] = {}

    def original(self, batch: Batch) -> Batch:
        """Return the original form of a batch, before compaction."""
        return self._shrunk.get(batch.identity, batch)

    def knows(self, batch: Batch) -> bool:
        """Return True if `batch` is the result of compacting another batch."""
        return batch.identity in self._shrunk

    def note(self, original: Batch, now: Batch | None) -> str:
        """Record that a host holds `now` in place of `original`. Return the finding, or an empty string."""
        first_seen = self._gone.setdefault(original.base_offset, original)
        if now is not None:
            self._shrunk[now.identity] = original
        if first_seen.identity != original.identity:
            return (
                f"I10 offset {original.base_offset}: two batches were compacted there, "
                f"of epochs {first_seen.leader_epoch} and {original.leader_epoch}"
            )
        return ""

    def between(self, first: int, end: int) -> list[Batch] | None:
        """Return the removed batches from offset `first` to `end` (excluded).

        Return None if they do not cover the range.
        """
        found = []
        while first < end:
            batch = self._gone.get(first)
            if batch is None:
                return None
            found.append(batch)
            first = batch.last_offset + 1
        return found if first == end else None


@dataclass
class Content:
    """Keys, transactions and producers of one log, from its original batches."""

    end: int = 0
    newest: dict[bytes, list[int]] = field(default_factory=dict)
    """By key: ascending offsets of its records that were not aborted.

    Offsets above the last stable offset may be missing.
    """
    aborted: dict[int, None] = field(default_factory=dict)
    """Offsets of aborted records."""
    ended: dict[int, list[int]] = field(default_factory=dict)
    """By offset of a marker: the base offsets of the batches of its transaction."""
    last_of: dict[int, Batch] = field(default_factory=dict)
    """By producer id: its last batch with a sequence, unless a marker with another epoch follows it."""
    _open: dict[int, list[Batch]] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        return min((batches[0].base_offset for batches in self._open.values()), default=self.end)

    def add(self, batch: Batch) -> None:
        self.end = batch.last_offset + 1
        self._note_producer(batch)
        if batch.is_control:
            ended = self._open.pop(batch.producer_id, [])
            self.ended[batch.base_offset] = [data_batch.base_offset for data_batch in ended]
            for data_batch in ended:
                if batch.control_type == COMMIT:
                    self._take_effect(data_batch)
                else:
                    self.aborted.update(dict.fromkeys(data_batch.offsets))
        elif batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).append(batch)
        else:
            self._take_effect(batch)

    def _note_producer(self, batch: Batch) -> None:
        if batch.producer_id == NO_PRODUCER_ID:
            return  # a coordinator writes its batches without a producer id
        last = self.last_of.get(batch.producer_id)
        if not batch.is_control and batch.base_sequence >= 0:
            self.last_of[batch.producer_id] = batch
        elif last is not None and batch.producer_epoch != last.producer_epoch:
            del self.last_of[batch.producer_id]

    def _take_effect(self, batch: Batch) -> None:
        for offset, (key, _) in zip(batch.offsets, batch.records, strict=True):
            if key is not None:
                offsets = self.newest.setdefault(key, [])
                if offsets and offsets[-1] > offset:
                    offsets.insert(bisect_right(offsets, offset), offset)
                else:
                    offsets.append(offset)

    def superseded_by(self, key: bytes, offset: int) -> int | None:
        """Return the offset of the next stable record of the key after `offset`, or None."""
        offsets = self.newest.get(key, [])
        place = bisect_right(offsets, offset)
        return offsets[place] if place < len(offsets) and offsets[place] < self.stable_end else None


@dataclass(frozen=True, slots=True)
class Judge:
    """Check of one compaction result on one host.

    `committed` returns True for a committed offset. `wall_ms` is the wall clock of the host, or None if the clock may
    have been stepped. With `future_timestamps`, records may have timestamps after the time at which they are produced.
    """

    content: Content
    cleaned: Cleaned
    committed: Callable[[int], bool]
    wall_ms: int | None
    retention_ms: int
    producers_expire: bool = False
    future_timestamps: bool = False

    def taken(self, original: Batch, was: Batch | None, now: Batch | None) -> Iterator[str]:
        """Yield findings about replacing `was` by `now`, both of them parts of the batch `original`."""
        where = f"offset {original.base_offset}"
        if now is not None and not is_part(now, original):
            yield f"{where}: compaction left contents that the original batch does not have"
            return
        if original.last_offset >= self.content.stable_end:
            yield f"{where} was compacted, the last stable offset is {self.content.stable_end}"
        last = self.content.last_of.get(original.producer_id)
        is_last = last is not None and last.base_offset == original.base_offset
        if now is None and is_last and not self.producers_expire:
            yield (
                f"{where}: the last batch of producer {original.producer_id} was removed, but the broker checks "
                "its next sequence against it"
            )
        horizon = None if was is None else was.delete_horizon
        left = {} if now is None else dict.fromkeys(now.offsets)
        rows = () if was is None else zip(was.offsets, was.records, strict=True)
        for offset, (key, value) in rows:
            if offset in left or offset in self.content.aborted:
                continue
            if original.is_control:
                if not self._passed(horizon):
                    yield f"offset {offset}: a marker was removed at {self.wall_ms}, its delete horizon is {horizon}"
                continue
            later = None if key is None else self.content.superseded_by(key, offset)
            if later is None and (key is None or value is not None):
                yield f"offset {offset}: the newest record of key {key!r} was removed"
            elif later is None and not self._passed(horizon):
                yield f"offset {offset}: a tombstone was removed at {self.wall_ms}, its delete horizon is {horizon}"
            elif later is None:
                self.cleaned.expired[offset] = None
            else:
                self.cleaned.later.setdefault(offset, later)
                if not self.committed(later):
                    yield f"offset {offset} of key {key!r} was removed for offset {later}, which is not committed"
        if now is not None and now.delete_horizon is not None and horizon is None:
            yield from self._horizon_set(original, now.delete_horizon)

    def _passed(self, horizon: int | None) -> bool:
        return horizon is not None and (self.wall_ms is None or horizon <= self.wall_ms)

    def _horizon_set(self, original: Batch, horizon: int) -> Iterator[str]:
        if self.wall_ms is None:
            return
        begun = horizon - self.retention_ms
        too_early = not self.future_timestamps and begun < original.max_timestamp - DRIFT_MS
        if too_early or begun > self.wall_ms + DRIFT_MS:
            yield (
                f"offset {original.base_offset}: delete horizon {horizon} was set at {self.wall_ms}, "
                f"delete.retention.ms is {self.retention_ms}"
            )


def is_part(now: Batch, original: Batch) -> bool:
    """Return True if all contents of `now` are in `original`, at the same offsets."""
    kind = TRANSACTIONAL | CONTROL
    same = all(
        getattr(now, name) == getattr(original, name)
        for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    )
    written = dict(zip(original.offsets, original.records, strict=True))
    return (
        same
        and now.attributes & kind == original.attributes & kind
        and all(
            offset in written and written[offset] == record
            for offset, record in zip(now.offsets, now.records, strict=True)
        )
        and all(original.marks.get(delta) == mark for delta, mark in now.marks.items())
    )


def check_held(log: Sequence[Held], content: Content, cleaned: Cleaned) -> Iterator[str]:
    """Yield findings about the part of a log that one disk holds, against all that was written to the log.

    The newest stable value of each key must be there. A missing tombstone must not leave earlier records of its key,
    and a missing marker must not leave data of its transaction. A replica that lags may lack a record whose later
    record it has not fetched yet.
    """
    there: dict[int, None] = {}
    batches: dict[int, None] = {}
    values: dict[int, bytes | None] = {}
    for part in log:
        values.update(zip(part.batch.offsets, (value for _, value in part.batch.records), strict=True))
        if part.held is not None:
            there.update(dict.fromkeys(part.held.offsets))
            if part.held.records:
                batches[part.held.base_offset] = None
    stable_end = content.stable_end
    for key, offsets in content.newest.items():
        stable = offsets[: bisect_right(offsets, stable_end - 1)]
        if not stable or stable[-1] in there or cleaned.later.get(stable[-1], -1) >= stable_end:
            continue
        left = [offset for offset in stable if offset in there]
        if values.get(stable[-1]) is not None:
            yield f"offset {stable[-1]}: the newest value of key {key!r} is missing"
        elif left:
            yield f"offset {stable[-1]}: the tombstone of key {key!r} was removed before the record at {left[0]}"
    for marker, ended in content.ended.items():
        uncovered = [] if marker in batches else [base for base in ended if base in batches]
        if uncovered:
            yield f"offset {marker}: the marker was removed before the data of its transaction at {uncovered[0]}"
