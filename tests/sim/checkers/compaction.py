"""I10 of compacted logs: what may be missing from them. Written from Kafka's rules (kafka-facts 6.10), and apart from the broker's code.

A log is judged as it was written, whatever has become of it on this disk or that: `Cleaned` knows what was taken away, and by
what right, so that the other checkers see whole logs. What is taken without a right is a finding here:
- a record goes when one of its key comes behind it that is stable and committed, or when it was aborted;
- a tombstone, or a marker, when a delete horizon was set on its batch that has passed, and nothing is left of what it ended;
- nothing goes that is not stable, and what stays keeps its offsets, its producer, its sequence and its contents;
- the last batch of a producer stays, if need be without its records: its next one is judged by it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.sim.checkers.batches import COMMIT, CONTROL, TRANSACTIONAL, Batch, Identity

NO_PRODUCER_ID: Final = -1
DRIFT_MS: Final = 2000
"""How far the clocks of hosts may be apart that do not jump."""


class Held(Protocol):
    """A batch as it was written, and what one disk holds of it now (None: nothing)."""

    batch: Batch
    held: Batch | None


class Cleaned:
    """What compaction has taken from one partition, on any host: all of it was committed, so there is one original of each."""

    def __init__(self) -> None:
        self.later: dict[int, int] = {}
        """By offset of a record that was taken, that of the one in whose favor."""
        self.expired: dict[int, None] = {}
        """Offsets of tombstones that have had their time, while nothing had come behind them."""
        self._gone: dict[int, Batch] = {}
        self._shrunk: dict[Identity, Batch] = {}

    def original(self, batch: Batch) -> Batch:
        """As it was written."""
        return self._shrunk.get(batch.identity, batch)

    def knows(self, batch: Batch) -> bool:
        """Whether it is what compaction has left of another one."""
        return batch.identity in self._shrunk

    def note(self, original: Batch, now: Batch | None) -> str:
        """Some host has `now` in place of it. What is wrong with that, if anything."""
        other = self._gone.setdefault(original.base_offset, original)
        if now is not None:
            self._shrunk[now.identity] = original
        if other.identity != original.identity:
            return f"I10 offset {original.base_offset}: two batches were compacted there, of epochs {other.leader_epoch} and {original.leader_epoch}"
        return ""

    def between(self, first: int, end: int) -> list[Batch] | None:
        """What was taken away from `first` to below `end`; None when that is not all that was there."""
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
    """What a log says, batch by batch as it was written."""

    end: int = 0
    newest: dict[bytes, list[int]] = field(default_factory=dict)
    """By key the offsets of its records that were not aborted, from the lowest up. Those above the last stable offset may be missing."""
    aborted: dict[int, None] = field(default_factory=dict)
    """Offsets of records."""
    ended: dict[int, list[int]] = field(default_factory=dict)
    """By offset of a marker, the base offsets of the batches that it has ended."""
    last_of: dict[int, Batch] = field(default_factory=dict)
    """By producer id the last batch that has a sequence, unless a marker of a later epoch has come behind it."""
    _open: dict[int, list[Batch]] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        return min((batches[0].base_offset for batches in self._open.values()), default=self.end)

    def add(self, batch: Batch) -> None:
        self.end = batch.last_offset + 1
        self._note_producer(batch)
        if batch.is_control:
            ended = self._open.pop(batch.producer_id, [])
            self.ended[batch.base_offset] = [each.base_offset for each in ended]
            for each in ended:
                if batch.control_type == COMMIT:
                    self._in_force(each)
                else:
                    self.aborted.update(dict.fromkeys(each.offsets))
        elif batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).append(batch)
        else:
            self._in_force(batch)

    def _note_producer(self, batch: Batch) -> None:
        if batch.producer_id == NO_PRODUCER_ID:
            return  # of a coordinator, whose batches are numbered all the same
        last = self.last_of.get(batch.producer_id)
        if not batch.is_control and batch.base_sequence >= 0:
            self.last_of[batch.producer_id] = batch
        elif last is not None and batch.producer_epoch != last.producer_epoch:
            del self.last_of[batch.producer_id]

    def _in_force(self, batch: Batch) -> None:
        for offset, (key, _) in zip(batch.offsets, batch.records, strict=True):
            if key is not None:
                offsets = self.newest.setdefault(key, [])
                if offsets and offsets[-1] > offset:
                    offsets.insert(bisect_right(offsets, offset), offset)
                else:
                    offsets.append(offset)

    def superseded_by(self, key: bytes, offset: int) -> int | None:
        """The next stable record of the key."""
        offsets = self.newest.get(key, [])
        place = bisect_right(offsets, offset)
        return offsets[place] if place < len(offsets) and offsets[place] < self.stable_end else None


@dataclass(frozen=True, slots=True)
class Judge:
    """`committed` says of an offset whether it was; `wall_ms` is the clock of the host, None where it may have jumped."""

    content: Content
    cleaned: Cleaned
    committed: Callable[[int], bool]
    wall_ms: int | None
    retention_ms: int

    def taken(self, original: Batch, was: Batch | None, now: Batch | None) -> Iterator[str]:
        """What is wrong with `now` in place of `was`, both of them what is left of `original`."""
        where = f"offset {original.base_offset}"
        if now is not None and not is_part(now, original):
            yield f"{where}: what compaction has left is no part of what was written"
            return
        if original.last_offset >= self.content.stable_end:
            yield f"{where} was compacted, the last stable offset is {self.content.stable_end}"
        last = self.content.last_of.get(original.producer_id)
        if now is None and last is not None and last.base_offset == original.base_offset:
            yield f"{where}: the last batch of producer {original.producer_id} is gone, its next sequence is judged by it"
        horizon = None if was is None else was.delete_horizon
        left = {} if now is None else dict.fromkeys(now.offsets)
        rows = () if was is None else zip(was.offsets, was.records, strict=True)
        for offset, (key, value) in rows:
            if offset in left or offset in self.content.aborted:
                continue
            if original.is_control:
                if not self._passed(horizon):
                    yield f"offset {offset}: a marker is gone, its delete horizon is {horizon}, it is {self.wall_ms}"
                continue
            later = None if key is None else self.content.superseded_by(key, offset)
            if later is None and (key is None or value is not None):
                yield f"offset {offset}: the newest record of key {key!r} is gone"
            elif later is None and not self._passed(horizon):
                yield f"offset {offset}: a tombstone is gone, its delete horizon is {horizon}, it is {self.wall_ms}"
            elif later is None:
                self.cleaned.expired[offset] = None
            else:
                self.cleaned.later.setdefault(offset, later)
                if not self.committed(later):
                    yield f"offset {offset} of key {key!r} is gone, offset {later} in its place is not committed"
        if now is not None and now.delete_horizon is not None and horizon is None:
            yield from self._horizon_set(original, now.delete_horizon)

    def _passed(self, horizon: int | None) -> bool:
        return horizon is not None and (self.wall_ms is None or horizon <= self.wall_ms)

    def _horizon_set(self, original: Batch, horizon: int) -> Iterator[str]:
        if self.wall_ms is None:
            return
        begun = horizon - self.retention_ms
        if not original.max_timestamp - DRIFT_MS <= begun <= self.wall_ms + DRIFT_MS:
            yield f"offset {original.base_offset}: delete horizon {horizon} was set at {self.wall_ms}, delete.retention.ms is {self.retention_ms}"


def is_part(now: Batch, original: Batch) -> bool:
    """Whether all that `now` says stands in `original`, at the same offsets."""
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
    """What one disk holds of a log against all that was written to it: of each key the newest stable value is there; a tombstone
    that is gone uncovers nothing, and neither does a marker.

    A replica that lags may lack a record in favor of one that it has not fetched yet.
    """
    there: dict[int, None] = {}
    batches: dict[int, None] = {}
    values: dict[int, bytes | None] = {}
    for each in log:
        values.update(zip(each.batch.offsets, (value for _, value in each.batch.records), strict=True))
        if each.held is not None:
            there.update(dict.fromkeys(each.held.offsets))
            if each.held.records:
                batches[each.held.base_offset] = None
    stable_end = content.stable_end
    for key, offsets in content.newest.items():
        stable = offsets[: bisect_right(offsets, stable_end - 1)]
        if not stable or stable[-1] in there or cleaned.later.get(stable[-1], -1) >= stable_end:
            continue
        left = [offset for offset in stable if offset in there]
        if values.get(stable[-1]) is not None:
            yield f"offset {stable[-1]}: the newest value of key {key!r} is not there"
        elif left:
            yield f"offset {stable[-1]}: the tombstone of key {key!r} is gone, the record at {left[0]} is not"
    for marker, ended in content.ended.items():
        uncovered = [] if marker in batches else [base for base in ended if base in batches]
        if uncovered:
            yield f"offset {marker}: the marker is gone, the data at {uncovered[0]} that it has ended is not"
