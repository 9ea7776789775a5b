"""Plan offsets and tasks of the source. The rules are those of Spark's own Kafka source."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client import LATEST, TopicPartition
from odradek.spark.errors import InvalidInput
from odradek.spark.source_options import AtTimestamp, ByOffset, Everywhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from odradek.spark.source_options import Bound

Offsets = dict[TopicPartition, int]
NO_MATCH: Final = -1
"""Offset in a ListOffsets response for a timestamp after the last record."""


class OffsetRange(NamedTuple):
    """Offsets of a partition that one task reads: from `start` until before `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets. The number of records is lower if a log is compacted or has transactions."""
        return self.end - self.start


class Plan(NamedTuple):
    """Ranges of a micro-batch, and a sentence for each kind of loss."""

    ranges: list[OffsetRange]
    losses: list[str]


class Lookup(NamedTuple):
    """A bound for known partitions: exact offsets, and the timestamps whose offsets leaders must return.

    A timestamp can be EARLIEST or LATEST.
    """

    exact: Offsets
    timestamps: Offsets


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the form of Spark's own source, sorted, since Spark compares them as text."""
    value: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        value.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return value


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of a checkpoint."""
    return {TopicPartition(topic, int(index)): each for topic, rows in value.items() for index, each in rows.items()}


def lookup(bound: Bound, partitions: Sequence[TopicPartition]) -> Lookup:
    """Return what the leaders must look up. Raise InvalidInput if the bound names other partitions."""
    if isinstance(bound, Everywhere):
        return Lookup({}, dict.fromkeys(partitions, bound.value))
    if isinstance(bound, AtTimestamp):
        return Lookup({}, dict.fromkeys(partitions, bound.timestamp))
    values = bound.offsets if isinstance(bound, ByOffset) else bound.timestamps
    if values.keys() != set(partitions):
        missing = _names(set(partitions) - values.keys())
        unknown = _names(values.keys() - set(partitions))
        problem = "; ".join(
            text for text in (missing and f"{missing} are not named", unknown and f"{unknown} are not read") if text
        )
        raise InvalidInput(f"offsets or timestamps must name all partitions and no others: {problem}")
    if isinstance(bound, ByOffset):
        exact = {key: offset for key, offset in values.items() if offset >= 0}
        return Lookup(exact, {key: offset for key, offset in values.items() if offset < 0})
    return Lookup({}, dict(values))


def unmatched(wanted: Lookup, found: Mapping[TopicPartition, int]) -> Offsets:
    """Return the partitions without a record at or after their timestamp, with LATEST."""
    return {key: LATEST for key, offset in found.items() if offset == NO_MATCH and wanted.timestamps[key] >= 0}


def batch_plan(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], latest: Offsets) -> Plan:
    """Return the ranges of a batch query. An end after the log is a loss, and is limited to the log."""
    ranges, losses = [], []
    for key in sorted(start):
        if end[key] > latest[key]:
            losses.append(f"{key} ends at offset {latest[key]}, before the ending offset {end[key]}")
        ranges.append(OffsetRange(key, start[key], min(end[key], latest[key])))
    return Plan(ranges, losses)


def stream_plan(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int]
) -> Plan:
    """Return the ranges of a micro-batch. `earliest` has the log start offsets of partitions that `start` lacks."""
    losses = []
    added = sorted(end.keys() - start.keys())
    gone = sorted((start.keys() - end.keys()) | {key for key in added if key not in earliest})
    if gone:
        losses.append(f"{_names(gone)} do not exist any more")
    losses += [f"new partition {key} begins at offset {earliest[key]}, not at 0" for key in added if earliest.get(key)]
    first = {**earliest, **start}
    ranges = [OffsetRange(key, first[key], end[key]) for key in sorted(end) if key in first]
    losses += [
        f"the end of {each.partition} went back from {each.start} to {each.end}" for each in ranges if each.size < 0
    ]
    return Plan(ranges, losses)


def split(ranges: Iterable[OffsetRange], tasks_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Split ranges for tasks. Omit empty ones.

    With `records_max`, no task has more offsets. With `tasks_min`, there are about as many tasks: large ranges are
    split in proportion to their sizes, small ones stay whole.
    """
    found = [each for each in ranges if each.size > 0]
    if records_max is not None:
        found = [piece for each in found for piece in _pieces(each, -(-each.size // records_max))]
    if tasks_min is None or len(found) >= tasks_min:
        return found
    total = sum(each.size for each in found)
    whole = {each for each in found if _parts(each.size, total, tasks_min) == 1}
    divided_total = total - sum(each.size for each in whole)
    divided_min = max(tasks_min - len(whole), 1)
    return [
        piece
        for each in found
        for piece in _pieces(each, 1 if each in whole else _parts(each.size, divided_total, divided_min))
    ]


def _parts(size: int, total: int, tasks_min: int) -> int:
    return max(math.floor(size / total * tasks_min + 0.5), 1)


def _pieces(each: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Divide a range. The last pieces take the remainder."""
    start = each.start
    for part in range(parts):
        end = start + (each.end - start) // (parts - part)
        if end > start:
            yield OffsetRange(each.partition, start, end)
        start = end


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    offsets_max: int,
) -> Offsets:
    """Return the end of a micro-batch of at most about `offsets_max` offsets, in proportion to what each partition has.

    A partition with new offsets advances by at least one. `earliest` is the same as in `stream_plan`.
    """
    first = {**earliest, **start}
    sizes = {key: end[key] - first[key] for key in end if key in first and end[key] > first[key]}
    total = sum(sizes.values())
    bounded = dict(end)
    for key, size in sizes.items():
        share = offsets_max * (size / total)
        bounded[key] = min(end[key], first[key] + (math.ceil(share) if share < 1 else math.floor(share)))
    return bounded


def new_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between `start` and `end`. A new partition counts from 0."""
    return sum(offset - start.get(key, 0) for key, offset in end.items())


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
