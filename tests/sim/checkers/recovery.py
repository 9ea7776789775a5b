"""I16: what a restarted node knows equals what a replay of its log says."""

import struct
from collections.abc import Iterator
from typing import Final

import crc32c

from tests.sim.checkers.coordinator_log import STATE_NAMES, last_states
from tests.sim.checkers.evidence import Evidence, SnapshotRow
from tests.sim.checkers.visibility import PartitionModel

SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
SNAPSHOT_ROW: Final = struct.Struct(">qhiqiqiq")


def read_snapshot(data: bytes) -> list[SnapshotRow] | None:
    """Rows of a producer snapshot file; None when it is not a valid one (the broker must then do without it)."""
    if len(data) < SNAPSHOT_HEADER.size:
        return None
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if version != 1 or len(data) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ROW.size or crc32c.crc32c(data[6:]) != crc:
        return None
    rows = []
    for index in range(count):
        row = SNAPSHOT_ROW.unpack_from(data, SNAPSHOT_HEADER.size + index * SNAPSHOT_ROW.size)
        rows.append(SnapshotRow(row[0], row[1], row[2], row[6], row[7]))
    return rows


def expected_rows(model: PartitionModel) -> dict[int, SnapshotRow]:
    return {
        producer_id: SnapshotRow(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.coordinator_epoch,
            producer.open_since if producer.open_since is not None else -1,
        )
        for producer_id, producer in model.producers.items()
    }


def forgive(rows: dict[int, SnapshotRow], expected: dict[int, SnapshotRow]) -> None:
    """Of a compacted log: the marker that said who coordinates may have been taken away."""
    for producer_id, row in rows.items():
        wanted = expected.get(producer_id)
        if wanted is not None and row.coordinator_epoch < wanted.coordinator_epoch:
            wanted.coordinator_epoch = row.coordinator_epoch


def forgive_gone(rows: dict[int, SnapshotRow], expected: dict[int, SnapshotRow], left: dict[int, SnapshotRow]) -> None:
    """As `forgive`; and who has fetched a log up to the middle of what was compacted elsewhere never had what was gone there.

    A transaction whose marker is still to come begins for it with the first batch that was left, and a producer has come as far as
    the last one. That is what is `left` on its disk; what came from a snapshot of earlier days is as `expected`. Of each producer
    one of the two has to hold, as a whole.
    """
    for producer_id, row in left.items():
        row.coordinator_epoch = expected[producer_id].coordinator_epoch
    forgive(rows, expected)
    forgive(rows, left)
    for producer_id in list(expected):
        if rows.get(producer_id) == left.get(producer_id):
            del expected[producer_id]
            if producer_id in left:
                expected[producer_id] = left[producer_id]


def stable_end(expected: dict[int, SnapshotRow], end: int) -> int:
    """The last stable offset of who knows these producers, of a log that ends there."""
    return min((row.open_since for row in expected.values() if row.open_since >= 0), default=end)


def check_producer_state(evidence: Evidence) -> Iterator[str]:
    """DescribeProducers of a restarted node, and every snapshot file, against a replay by the checkers' own model."""
    for partition, rows in evidence.described_producers.items():
        what, model = f"I16 DescribeProducers of {partition}", evidence.partitions[partition]
        yield from _compare(what, rows, model, compacted=partition in evidence.compacted)
    for partition, files in evidence.snapshots.items():
        for offset, rows in files:
            what, model = f"I16 snapshot {offset} of {partition}", evidence.snapshot_models[partition, offset]
            yield from _compare(what, rows, model, compacted=partition in evidence.compacted)


def _compare(what: str, rows: list[SnapshotRow], model: PartitionModel, *, compacted: bool) -> Iterator[str]:
    expected = expected_rows(model)
    if compacted:
        forgive({row.producer_id: row for row in rows}, expected)
    for row in rows:
        wanted = expected.pop(row.producer_id, None)
        if wanted != row:
            yield f"{what}: {row}, a replay gives {wanted}"
    for wanted in expected.values():
        yield f"{what}: lacks {wanted}"


def check_transaction_state(evidence: Evidence) -> Iterator[str]:
    """DescribeTransactions of a restarted node against a replay of the coordinator's log."""
    if not evidence.described_transactions:
        return
    states = {}
    for entries in evidence.coordinators.values():
        states.update(last_states(entries))
    for transactional_id, described in evidence.described_transactions.items():
        entry = states.get(transactional_id)
        wanted = (STATE_NAMES[entry.state], entry.producer_id, entry.producer_epoch) if entry is not None else None
        if wanted != described:
            yield f"I16 DescribeTransactions of {transactional_id}: {described}, a replay gives {wanted}"
