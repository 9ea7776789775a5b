"""Records for the compacted topic of clients: few keys, some tombstones. Records of other topics have no keys."""

from typing import TYPE_CHECKING, Any, Final

from tests.sim.world import TABLE

if TYPE_CHECKING:
    from tests.sim.history import Partition
    from tests.sim.workloads.client import Client

PADDING_MAX: Final = 40
"""Maximum padding of values of the compacted topic, in bytes: keys matter there, not sizes."""


def next_values(client: "Client", partition: "Partition", count: int, *, padding: int) -> tuple[bytes, ...]:
    """Return unique values for the next records."""
    return client.world.next_values(count, padding=min(padding, PADDING_MAX) if partition[0] == TABLE else padding)


def rows_of(client: "Client", partition: "Partition", values: tuple[bytes, ...]) -> dict[str, Any]:
    """Return the arguments of `encode_batch` for the values. A tombstone carries its value in a header."""
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
