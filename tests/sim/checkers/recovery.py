"""I16: the state of a restarted broker equals a replay of its log by the checkers' own model."""

import struct
from collections.abc import Iterator
from typing import Final

import crc32c

from tests.sim.checkers.coordinator_log import STATE_NAMES, last_states
from tests.sim.checkers.evidence import Evidence, SnapshotRow
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import Partition

SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
SNAPSHOT_ROW: Final = struct.Struct(">qhiqiqiq")


def read_snapshot(data: bytes) -> list[SnapshotRow] | None:
    """Return the rows of a producer snapshot file, or None if it is not valid. The broker must then ignore the file."""
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


def accept_older_coordinator_epochs(rows: dict[int, SnapshotRow], expected: dict[int, SnapshotRow]) -> None:
    """Copy older coordinator epochs from `rows` to `expected`: compaction may have removed the marker with the newer
    epoch.
    """
    for producer_id, row in rows.items():
        expected_row = expected.get(producer_id)
        if expected_row is not None and row.coordinator_epoch < expected_row.coordinator_epoch:
            expected_row.coordinator_epoch = row.coordinator_epoch


def accept_removed_batches(
    rows: dict[int, SnapshotRow], expected: dict[int, SnapshotRow], left: dict[int, SnapshotRow]
) -> None:
    """Adapt the `expected` rows of a compacted log that this replica fetched after batches had been removed on the
    leader.

    The replica never had the removed batches. For it, an open transaction begins with the first batch that is left, and
    a producer ends with the last one. `left` holds the rows of a replay of the batches on its disk. A row loaded from
    an earlier snapshot equals the row in `expected` instead. The row of each producer must equal one of the two
    completely.
    """
    for producer_id, row in left.items():
        row.coordinator_epoch = expected[producer_id].coordinator_epoch
    accept_older_coordinator_epochs(rows, expected)
    accept_older_coordinator_epochs(rows, left)
    for producer_id in list(expected):
        if rows.get(producer_id) == left.get(producer_id):
            del expected[producer_id]
            if producer_id in left:
                expected[producer_id] = left[producer_id]


def accept_expired(rows: dict[int, SnapshotRow], expected: dict[int, SnapshotRow]) -> None:
    """Adapt the `expected` rows of a run in which producers expire.

    The row of a producer without an open transaction may be missing. A producer that has written again since then may
    have an older coordinator epoch, because its earlier markers are forgotten.
    """
    for producer_id, row in list(expected.items()):
        if row.open_since < 0 and producer_id not in rows:
            del expected[producer_id]
    accept_older_coordinator_epochs(rows, expected)


def stable_end(expected: dict[int, SnapshotRow], end: int) -> int:
    """Return the last stable offset of a log that ends at `end`, from the rows of its producers."""
    return min((row.open_since for row in expected.values() if row.open_since >= 0), default=end)


def check_producer_state(evidence: Evidence) -> Iterator[str]:
    """I16: DescribeProducers of a restarted broker and each snapshot file equal a replay by the checkers' own model."""
    for partition, rows in evidence.described_producers.items():
        what, model = f"I16 DescribeProducers of {partition}", evidence.partitions[partition]
        yield from _compare(evidence, partition, what, rows, model)
    for partition, files in evidence.snapshots.items():
        for offset, rows in files:
            what, model = f"I16 snapshot {offset} of {partition}", evidence.snapshot_models[partition, offset]
            yield from _compare(evidence, partition, what, rows, model)


def _compare(
    evidence: Evidence, partition: Partition, what: str, rows: list[SnapshotRow], model: PartitionModel
) -> Iterator[str]:
    expected, by_id = expected_rows(model), {row.producer_id: row for row in rows}
    if partition in evidence.compacted:
        accept_older_coordinator_epochs(by_id, expected)
    if evidence.producers_expire:
        if partition in evidence.left:  # compaction removes the last batch of an expired producer
            accept_removed_batches(by_id, expected, expected_rows(evidence.left[partition]))
        accept_expired(by_id, expected)
    for row in rows:
        expected_row = expected.pop(row.producer_id, None)
        if expected_row != row:
            yield f"{what}: {row}, a replay gives {expected_row}"
    for expected_row in expected.values():
        yield f"{what}: lacks {expected_row}"


def check_transaction_state(evidence: Evidence) -> Iterator[str]:
    """I16: DescribeTransactions of a restarted broker equals a replay of the coordinator's log."""
    if not evidence.described_transactions:
        return
    states = {}
    for entries in evidence.coordinators.values():
        states.update(last_states(entries))
    for transactional_id, described in evidence.described_transactions.items():
        entry = states.get(transactional_id)
        expected_row = (
            (STATE_NAMES[entry.state], entry.producer_id, entry.producer_epoch) if entry is not None else None
        )
        if expected_row != described:
            yield f"I16 DescribeTransactions of {transactional_id}: {described}, a replay gives {expected_row}"
