"""Read ranges of offsets in the tasks of Spark. Each task has a fetch connection of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final

from odradek.client import (
    LATEST,
    IsolationLevel,
    NotFound,
    ProtocolError,
    Refused,
    RequestTimedOut,
    checked_batches,
    fetch_range,
    offsets_of_partitions,
)
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.spark.source_columns import Layout, columns
from odradek.spark.source_lookup import begins_of, connection, report
from odradek.spark.source_outcomes import Markers, marker_of, visible, with_outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    import pyarrow as pa

    from odradek.client import Cluster, FetchedBatches, TopicPartition
    from odradek.spark.source_columns import Batch
    from odradek.spark.source_offsets import OffsetRange
    from odradek.spark.source_options import SourceOptions
    from odradek.spark.source_outcomes import Select

ROWS_PER_BATCH: Final = 10_000
"""Rows after which an Arrow batch ends: the default of spark.sql.execution.arrow.maxRecordsPerBatch."""
BYTES_PER_BATCH: Final = 4 * 2**20
"""Maximum bytes of records, after decompression, that become one Arrow batch, unless one record batch has more."""


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range.

    Raises:
        DataLoss: Records were deleted before they were read, or the log ends before the range does.
        ClientError: The cluster does not respond, or a batch is damaged.
    """
    with asyncio.Runner() as runner:
        rows = _rows(options, wanted)
        while (batch := runner.run(_next(rows))) is not None:
            yield batch


async def _next(rows: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(rows, None)


async def _rows(options: SourceOptions, wanted: OffsetRange) -> AsyncGenerator[pa.RecordBatch, None]:
    async with connection(options) as cluster, aclosing(_selected(cluster, options, wanted)) as responses:
        async for fetched, select, part in responses:
            for rows in _converted(options, part, fetched, select):
                yield rows


async def _selected(
    cluster: Cluster, options: SourceOptions, wanted: OffsetRange
) -> AsyncGenerator[tuple[FetchedBatches, Select, OffsetRange], None]:
    """Yield responses with the function that selects their batches, and the part of the range whose rows they have.

    With `includeTransactions`, leaders list the aborted transactions before the last stable offset. After it, the
    outcome of a batch is that of the next marker of its producer. A response of the first part can have batches of the
    second one, if the last stable offset advances before the Fetch request arrives.
    """
    if not options.transactions:
        async for fetched in _fetched(cluster, options, wanted, options.isolation):
            yield fetched, visible, wanted
        return
    key = wanted.partition
    stable = await _end_of(cluster, key, IsolationLevel.READ_COMMITTED, wanted.start)
    decided = wanted._replace(end=min(wanted.end, max(stable, wanted.start)))
    async for fetched in _fetched(cluster, options, decided, IsolationLevel.READ_COMMITTED):
        yield fetched, with_outcome, decided
    undecided = wanted._replace(start=decided.end)
    if undecided.size > 0:
        markers = await _markers(cluster, options, undecided)
        async for fetched in _fetched(cluster, options, undecided, IsolationLevel.READ_UNCOMMITTED):
            yield fetched, markers.select, undecided


async def _markers(cluster: Cluster, options: SourceOptions, undecided: OffsetRange) -> Markers:
    """Return the markers from the begin of a range to the end of the log."""
    end = await _end_of(cluster, undecided.partition, options.isolation, undecided.end)
    markers = Markers()
    async for fetched in _fetched(cluster, options, undecided._replace(end=end), IsolationLevel.READ_UNCOMMITTED):
        with _damage_named(undecided.partition):
            for header, batch, _ in checked_batches(fetched.data):
                marker = marker_of(header, batch)
                if marker is not None:
                    markers.add(header, marker)
    return markers


async def _end_of(cluster: Cluster, key: TopicPartition, isolation: IsolationLevel, missing: int) -> int:
    """Return the end of a partition, or `missing` if it does not exist: `_after_loss` reports this."""
    try:
        return (await offsets_of_partitions(cluster, {key: LATEST}, isolation))[key]
    except NotFound:
        return missing


async def _fetched(
    cluster: Cluster, options: SourceOptions, wanted: OffsetRange, isolation: IsolationLevel
) -> AsyncGenerator[FetchedBatches, None]:
    """Yield responses with batches until the end of a range. Skip offsets that were deleted if `failOnDataLoss` is
    false.

    Raise RequestTimedOut if the log has the next offset, but no batch arrives within `kafka.default.api.timeout.ms`.
    """
    loop = asyncio.get_running_loop()
    limit_s = options.settings.retry.deadline_s
    position = wanted.start
    deadline = loop.time() + limit_s
    while position < wanted.end:
        responses = fetch_range(
            cluster, wanted.partition, position, wanted.end, isolation, bytes_max=options.fetch_bytes_max
        )
        try:
            async with aclosing(responses):
                async for fetched in responses:
                    position = fetched.following
                    if position > fetched.first:
                        yield fetched
                        deadline = loop.time() + limit_s  # the time in which Spark uses the rows does not count
                    elif loop.time() > deadline:
                        break
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE and not isinstance(error, NotFound):
                raise
        if position < wanted.end:
            following = await _after_loss(cluster, options, wanted, position, timed_out=loop.time() > deadline)
            if following > position:
                deadline = loop.time() + limit_s
            position = following


async def _after_loss(
    cluster: Cluster, options: SourceOptions, wanted: OffsetRange, position: int, *, timed_out: bool
) -> int:
    """Return the next offset of a range that exists. Raise DataLoss if `failOnDataLoss` is true.

    Raise RequestTimedOut if `position` exists, and `timed_out` is true.
    """
    key = wanted.partition
    earliest = (await begins_of(cluster, [key])).get(key)
    if earliest is None:
        report(options, [f"{key} does not exist any more"])
        return wanted.end
    latest = await _end_of(cluster, key, options.isolation, earliest)
    if timed_out and earliest <= position < latest:
        raise RequestTimedOut(
            f"reading {key}: no batch at offset {position} arrived in {options.settings.retry.deadline_s} s",
            f"check its leader: the log has the offsets from {earliest} to {latest}",
        )
    report(
        options, [f"offset {position} of {key} is not readable: the log has the offsets from {earliest} to {latest}"]
    )
    return wanted.end if position >= latest else min(max(position, earliest), wanted.end)


def _converted(
    options: SourceOptions, wanted: OffsetRange, fetched: FetchedBatches, select: Select
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a response, in Arrow batches of bounded size."""
    layout = Layout(options.headers, options.transactions)
    group: list[Batch] = []
    rows = size = 0
    with _damage_named(wanted.partition):
        for header, data, aborted in checked_batches(fetched.data, fetched.aborted):
            batch = select(header, data, aborted)
            if batch is None:
                continue
            added = len(batch.body.records)
            if group and (rows >= ROWS_PER_BATCH or size + added > BYTES_PER_BATCH):
                yield from _one(columns(group, wanted.partition, layout, fetched.first, wanted.end))
                group, rows, size = [], 0, 0
            group.append(batch)
            rows += header.record_count
            size += added
        if group:
            yield from _one(columns(group, wanted.partition, layout, fetched.first, wanted.end))


def _one(batch: pa.RecordBatch | None) -> tuple[pa.RecordBatch, ...]:
    return () if batch is None else (batch,)


@contextmanager
def _damage_named(partition: TopicPartition) -> Iterator[None]:
    try:
        yield
    except Malformed as error:
        raise ProtocolError(f"{partition}: {error}") from error
