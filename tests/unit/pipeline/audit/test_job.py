"""Tasks of the audit that read partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from odradek.pipeline.audit import job, tables
from odradek.pipeline.audit.evidence import Event, EventKind, PartitionScan

if TYPE_CHECKING:
    import pytest

    from odradek.pipeline.audit.evidence import LogRange
    from odradek.pipeline.audit.sources import Listed


def scan(listed: Listed) -> tuple[PartitionScan, LogRange]:
    found = PartitionScan(listed["topic"], 0, 0, 0)
    found.events += [Event("t", 0, 7, 0, EventKind.DATA, offset, offset, 0, 0, 1) for offset in range(5)]
    return found, found.finish()


def test_rows_of_a_partition_are_made_one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Event] = []

    def counted(event: Event) -> tuple[str, dict[str, Any]]:
        made.append(event)
        return event_row(event)

    event_row = tables.event_row
    monkeypatch.setattr(tables, "event_row", counted)
    monkeypatch.setattr(job, "ROWS_PER_BATCH", 2)
    listed = pa.RecordBatch.from_pydict({"source": ['{"topic": "t"}']})
    sizes = []
    for number, batch in enumerate(job._reader(scan)(iter([listed])), start=1):
        assert len(made) <= 2 * number
        sizes.append(batch.num_rows)
    assert sizes == [2, 2, 2]
