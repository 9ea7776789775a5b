"""Look up partitions and offsets of a source in the driver."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, NamedTuple

from odradek.client import (
    EARLIEST,
    LATEST,
    Cluster,
    IsolationLevel,
    NotFound,
    TopicPartition,
    list_topics,
    offsets_of_partitions,
)
from odradek.spark.errors import DataLoss, InvalidInput
from odradek.spark.source_offsets import OffsetRange, Offsets, batch_plan, lookup, split, unmatched
from odradek.spark.source_options import Assignment, ByOffset, Everywhere, Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odradek.spark.source_options import Bound, SourceOptions


class Resolved(NamedTuple):
    """Offsets of a bound. `floating` are partitions whose offset changes as their log grows."""

    offsets: Offsets
    floating: frozenset[TopicPartition]


def connection(options: SourceOptions) -> Cluster:
    """Return a cluster whose connections are not open yet."""
    return Cluster(options.bootstrap, options.settings)


async def partitions_of(cluster: Cluster, options: SourceOptions, *, all_exist: bool) -> list[TopicPartition]:
    """Return the partitions of a subscription. Omit those that do not exist, or raise InvalidInput if `all_exist`."""
    subscription = options.subscription
    if isinstance(subscription, Pattern):
        matcher = re.compile(subscription.pattern)
        topics = [each.name for each in await list_topics(cluster) if not each.internal and matcher.search(each.name)]
        return await _partitions(cluster, topics, all_exist=False)
    if isinstance(subscription, Assignment):
        names = dict.fromkeys(key.topic for key in subscription.partitions)
        existing = await _partitions(cluster, names, all_exist=all_exist)
        missing = set(subscription.partitions) - set(existing)
        if missing and all_exist:
            raise InvalidInput(f"option assign: {', '.join(map(str, sorted(missing)))} do not exist")
        return [key for key in existing if key in subscription.partitions]
    return await _partitions(cluster, subscription.names, all_exist=all_exist)


async def _partitions(cluster: Cluster, names: Iterable[str], *, all_exist: bool) -> list[TopicPartition]:
    found = []
    for name in names:
        try:
            topic = await cluster.topic(name, refresh=True)
        except NotFound as error:
            if all_exist:
                raise InvalidInput(f"{error.problem}; create it before the query starts") from error
        else:
            found += [TopicPartition(name, index) for index in topic.partitions]
    return sorted(found)


async def start_of(
    cluster: Cluster, options: SourceOptions, bound: Bound, partitions: Sequence[TopicPartition]
) -> Resolved:
    """Return the starting offsets. Raise InvalidInput if a start timestamp has no record, and must have one."""
    wanted = lookup(bound, partitions)
    found = await offsets_of_partitions(cluster, wanted.timestamps, options.isolation)
    without = unmatched(wanted, found)
    if without and not options.unmatched_start_is_end:
        names = ", ".join(f"{key} at or after {wanted.timestamps[key]} ms" for key in sorted(without))
        raise InvalidInput(
            f"no record for the start timestamp in {names}; use startingOffsetsByTimestampStrategy=latest"
        )
    found |= await offsets_of_partitions(cluster, without, options.isolation)
    floating = frozenset(key for key, timestamp in wanted.timestamps.items() if timestamp != EARLIEST)
    return Resolved({**wanted.exact, **found}, floating)


async def batch_ranges(cluster: Cluster, options: SourceOptions, start: Bound, end: Bound) -> list[OffsetRange]:
    """Return the ranges of the tasks of a batch query. The end of each partition is fixed here, once."""
    partitions = await partitions_of(cluster, options, all_exist=True)
    latest = await ends_of(cluster, options, partitions)
    first = await start_of(cluster, options, start, partitions)
    last = latest
    if not isinstance(end, Everywhere):
        wanted = lookup(end, partitions)
        if not isinstance(end, ByOffset):
            found = await offsets_of_partitions(cluster, wanted.timestamps, options.isolation)
            matched = found.keys() - unmatched(wanted, found).keys()
            # A record that was added after the look-up of `latest` may match. All records before `latest` are older.
            last = latest | {key: min(found[key], latest[key]) for key in matched}
        else:
            last = latest | wanted.exact
    plan = batch_plan(first.offsets, last, latest)
    report(options, plan.losses)
    return split(plan.ranges, options.partitions_min, options.records_max)


async def ends_of(cluster: Cluster, options: SourceOptions, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the high watermarks of partitions, or their last stable offsets with READ_COMMITTED."""
    return await offsets_of_partitions(cluster, dict.fromkeys(partitions, LATEST), options.isolation)


async def begins_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the log start offsets of partitions. Omit those that do not exist."""
    found: Offsets = {}
    for key in partitions:
        try:
            found |= await offsets_of_partitions(cluster, {key: EARLIEST}, IsolationLevel.READ_UNCOMMITTED)
        except NotFound:
            continue
    return found


def report(options: SourceOptions, losses: Sequence[str]) -> None:
    """Raise DataLoss, or warn if `failOnDataLoss` is false."""
    if not losses:
        return
    problem = "; ".join(losses)
    if options.fail_on_data_loss:
        raise DataLoss(f"records may be lost: {problem}; to continue without them, set failOnDataLoss to false")
    warnings.warn(f"records may be lost: {problem}", stacklevel=2)
