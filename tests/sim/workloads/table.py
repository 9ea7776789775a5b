"""What is written to the table, the compacted topic of clients: few keys, and now and then a tombstone. Elsewhere records have no keys."""

from typing import TYPE_CHECKING, Any, Final

from tests.sim.world import TABLE

if TYPE_CHECKING:
    from tests.sim.history import Partition
    from tests.sim.workloads.client import Client

PADDING_MAX: Final = 40
"""Bytes: that would only make it larger."""


def next_values(client: "Client", partition: "Partition", count: int, *, padding: int) -> tuple[bytes, ...]:
    """What the next records are known by."""
    return client.world.next_values(count, padding=min(padding, PADDING_MAX) if partition[0] == TABLE else padding)


def rows_of(client: "Client", partition: "Partition", values: tuple[bytes, ...]) -> dict[str, Any]:
    """The records for them, as `encode_batch` takes them. What a tombstone is known by stands in a header."""
    compaction = client.world.options.compaction
    table = None if compaction is None or partition[0] != TABLE else compaction.table
    if table is None:
        return {"records": [(None, value) for value in values]}
    rng = client.rng
    marks = {index: value for index, value in enumerate(values) if rng.random() < table.tombstones}
    records = [
        (b"key-%d" % rng.randrange(table.keys), None if index in marks else value) for index, value in enumerate(values)
    ]
    return {"records": records, "marks": marks}
