"""Readers of the source `odradek` for batch and streaming queries."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from odradek.client import LATEST, NotFound
from odradek.client.network.retry import Attempts
from odradek.protocol.errors import ErrorCode
from odradek.spark.errors import InvalidInput
from odradek.spark.source_columns import Layout
from odradek.spark.source_lookup import (
    Resolved,
    batch_ranges,
    begins_of,
    connection,
    ends_of,
    partitions_of,
    report,
    start_of,
)
from odradek.spark.source_offsets import as_json, from_json, limited, new_offsets, split, stream_plan
from odradek.spark.source_options import TRIGGER_OPTIONS, Everywhere, check_batch
from odradek.spark.source_tasks import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from odradek.client import Cluster
    from odradek.spark.source_offsets import OffsetRange, Offsets
    from odradek.spark.source_options import SourceOptions

LIMITS_MODULE: Final = "pyspark.sql.streaming.datasource"
"""Module of pyspark 4.2 and later with read limits. Earlier versions do not pass limits to a source."""
WENT_BACK_S: Final = 3.0
"""Seconds for which the end of a partition is looked up again if it is before the end that was read.

A leader that was elected a moment ago can respond with a lower end than the leader before.
"""
JsonOffsets = dict[str, dict[str, int]]


@dataclass
class PlannedRange(InputPartition):
    """Input of one task."""

    wanted: OffsetRange


def layout_of(options: SourceOptions) -> Layout:
    """Return the columns that the options select."""
    return Layout(options.headers, options.transactions)


def _first_start(initial: Resolved, end: Offsets, begins: Offsets) -> Offsets:
    """Return the begin of the first batch. `begins` has the existing partitions that `end` lacks.

    Such a partition was created after an earlier run stored `end`, and it belongs to a later batch. A partition that
    does not exist stays in the begin, so that its deletion is a loss.
    """
    return {
        key: min(offset, end.get(key, offset)) if key in initial.floating else offset
        for key, offset in initial.offsets.items()
        if key not in begins
    }


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Raise InvalidInput if the query gives a schema with other columns than those of the source."""
    expected = {name.lower(): kind for name, kind in layout_of(options).fields.items()}
    if {each.name.lower(): each.dataType.simpleString() for each in schema.fields} != expected:
        raise InvalidInput("the columns of the source are fixed; remove the call of schema()")


def check_limits(given: Mapping[str, str]) -> None:
    """Raise InvalidInput if an option needs read limits, and this version of pyspark has none."""
    lower = {name.lower() for name in given}
    for name in TRIGGER_OPTIONS:
        if name.lower() in lower and find_spec(LIMITS_MODULE) is None:
            version = pyspark.__version__
            raise InvalidInput(f"option {name} needs pyspark 4.2 or later; remove it, since this is pyspark {version}")


class SourceReader(DataSourceReader):
    """Reader of a batch query. The ends of all partitions are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = check_batch(options)

    def partitions(self) -> list[PlannedRange]:
        """Return the inputs of the tasks."""
        return asyncio.run(self._partitions())

    async def _partitions(self) -> list[PlannedRange]:
        async with connection(self._options) as cluster:
            return [PlannedRange(each) for each in await batch_ranges(cluster, self._options, *self._bounds)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Without ranges, Spark calls it once without an input."""
        return read_range(self._options, partition.wanted) if isinstance(partition, PlannedRange) else iter(())


class SourceStreamReader(DataSourceStreamReader):
    """Reader of a streaming query. Spark's checkpoint has all state; the attributes are valid for one run.

    Spark calls `initialOffset` again if the first batch of a query is repeated in a later run, since the checkpoint has
    only the end of that batch. The start `latest` is then later than before. So the first batch has no records of such
    a partition: it ends where it begins, and the next batch begins there.

    `latestOffset` is called before `initialOffset` in pyspark 4.0 and 4.1, after it in later versions. With a start
    timestamp, the first batch has records in 4.0 and 4.1 alone.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: Resolved | None = None
        self._first_end: Offsets | None = None
        self._planned_end: Offsets | None = None
        self._known: Offsets = {}
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._triggered_at: float | None = None

    def initialOffset(self) -> JsonOffsets:  # noqa: N802  Spark's name
        """Return the starting offsets of a new query."""
        if self._initial is None:
            self._initial = asyncio.run(self._start())
        return as_json(self._initial.offsets)

    async def _start(self) -> Resolved:
        async with connection(self._options) as cluster:
            partitions = await partitions_of(cluster, self._options, all_exist=True)
            found = await start_of(cluster, self._options, self._options.start or Everywhere(LATEST), partitions)
        end = self._first_end or self._target or {}
        return found._replace(
            offsets={
                key: min(offset, end.get(key, offset)) if key in found.floating else offset
                for key, offset in found.offsets.items()
            }
        )

    def latestOffset(self, start: JsonOffsets | None = None, limit: Any = None) -> JsonOffsets:  # noqa: N802
        """Return the end of the next batch. pyspark 4.0 and 4.1 give no arguments.

        Args:
            start: Begin of the batch.
            limit: Limit of the trigger. ReadAllAvailable excludes the limits of the options.
        """
        return as_json(asyncio.run(self._end(None if start is None else from_json(start), limit)))

    async def _end(self, start: Offsets | None, limit: Any) -> Offsets:
        async with connection(self._options) as cluster:
            latest = self._target if self._target is not None else await self._ends(cluster, start or self._known)
            self._latest = end = latest
            if self._first_end is None:
                if self._initial is not None and self._planned_end is None:  # the first batch is not planned yet
                    end = end | {key: self._initial.offsets[key] for key in self._initial.floating if key in end}
                self._first_end = end
            if start is None or not self._options.limits or type(limit).__name__ == "ReadAllAvailable":
                return end
            if self._delayed(start, end):
                return start
            if self._options.limits.offsets_max is None:
                return end
            added = await begins_of(cluster, end.keys() - start.keys())
            return limited(start, end, added, self._options.limits.offsets_max)

    async def _ends(self, cluster: Cluster, known: Offsets) -> Offsets:
        """Return the ends of all partitions. Look them up again if one is before a known offset."""
        attempts = Attempts(replace(self._options.settings.retry, deadline_s=WENT_BACK_S))
        while True:
            try:
                partitions = await partitions_of(cluster, self._options, all_exist=False)
                ends = await ends_of(cluster, self._options, partitions)
            except NotFound as error:  # a topic was deleted between the two requests
                if await attempts.prepare(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is None:
                    raise error from None
                continue
            went_back = any(ends[key] < known.get(key, 0) for key in ends)
            if not went_back or await attempts.prepare(ErrorCode.OFFSET_NOT_AVAILABLE) is None:
                return ends

    def _delayed(self, start: Offsets, end: Offsets) -> bool:
        """Return True if the batch has too few offsets, and `maxTriggerDelay` has not passed since the last one."""
        limits = self._options.limits
        if limits.offsets_min is None or self._target is not None:
            return False
        now = time.monotonic()
        waited = self._triggered_at is None or now - self._triggered_at >= limits.delay_s_max
        if not waited and new_offsets(start, end) < limits.offsets_min:
            return True
        self._triggered_at = now
        return False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of a query with the trigger `availableNow`. Spark calls it in pyspark 4.2 and later."""

        async def ends() -> Offsets:
            async with connection(self._options) as cluster:
                return await self._ends(cluster, {})

        self._target = asyncio.run(ends())

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  Spark's name
        """Return the limit that Spark gives to `latestOffset`, in pyspark 4.2 and later."""
        module = import_module(LIMITS_MODULE)
        limits = self._options.limits
        if limits.offsets_max is not None:
            return module.ReadMaxRows(limits.offsets_max)
        return module.ReadAllAvailable() if limits.offsets_min is None else module.ReadMinRows(limits.offsets_min)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802  Spark's name
        """Return the ends of all partitions at the last trigger, for the progress of the query."""
        return as_json(self._latest) if self._latest else None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[PlannedRange]:
        """Return the inputs of the tasks of a batch."""
        return asyncio.run(self._partitions(from_json(start), from_json(end)))

    async def _partitions(self, start: Offsets, end: Offsets) -> list[PlannedRange]:
        async with connection(self._options) as cluster:
            if self._planned_end is None:
                self._planned_end = end
            is_first = self._planned_end == end  # the second batch begins there, too, if the first one was empty
            if is_first and self._initial is not None and start == self._initial.offsets:
                start = _first_start(self._initial, end, await begins_of(cluster, start.keys() - end.keys()))
            plan = stream_plan(start, end, await begins_of(cluster, end.keys() - start.keys()))
        report(self._options, plan.losses)
        self._known = end
        ranges = split(plan.ranges, self._options.partitions_min, self._options.records_max)
        return [PlannedRange(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_range(self._options, partition.wanted) if isinstance(partition, PlannedRange) else iter(())


if find_spec(LIMITS_MODULE) is not None:
    import_module(LIMITS_MODULE).SupportsTriggerAvailableNow.register(SourceStreamReader)
