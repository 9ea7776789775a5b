"""The checker of a compacted topic against hand-written reads: records that may be missing, and those that may not."""

from dataclasses import replace

import pytest

from tests.sim.checkers.batches import read_batches
from tests.sim.checkers.compaction import is_part
from tests.sim.checkers.evidence import Evidence, SnapshotRow
from tests.sim.checkers.recovery import check_producer_state
from tests.sim.checkers.table import check_table
from tests.sim.checkers.visibility import PartitionModel, consumer_view
from tests.sim.history import FETCH, OK, READ_COMMITTED, READ_UNCOMMITTED, History
from tests.sim.workloads.encode import CONTROL, TRANSACTIONAL, encode_batch, encode_marker

TABLE = ("table", 0)
DAY_MS = 24 * 3600 * 1000
ABORTED, TOMBSTONE, END = 2, 5, 7
"""Offsets of special records.

Key a has values at 0, 1 and 6 and an aborted one at 2. Key b has a value at 4 and a tombstone at 5.
"""


def written() -> list[bytes]:
    data = [(b"a", b"0"), (b"a", b"1")]
    return [
        encode_batch(data, timestamp=1, producer_id=7, producer_epoch=0, base_sequence=0),
        encode_batch(
            [(b"a", b"2")],
            timestamp=1,
            producer_id=8,
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL,
            base_offset=2,
        ),
        encode_marker(producer_id=8, producer_epoch=0, coordinator_epoch=3, commit=False, timestamp=1, base_offset=3),
        encode_batch([(b"b", b"4"), (b"b", None)], timestamp=1, base_offset=4, marks={1: b"5"}),
        encode_batch([(b"a", b"6")], timestamp=1, base_offset=6),
    ]


class Case:
    """One client that reads the topic from offset 0, in one or more fetches."""

    def __init__(self, *, retention_ms: int = DAY_MS) -> None:
        self.history = History()
        self.model = PartitionModel.read(written())
        self.evidence = Evidence(self.history, {TABLE: self.model}, compacted={TABLE: retention_ms})

    def read(self, start: int, end: int, *offsets: int, isolation: int = READ_COMMITTED, stable: int = END) -> "Case":
        operation = self.history.invoke(FETCH, "reader", 0.0, partition=TABLE, isolation=isolation, offset=start)
        records = [(offset, self.model.slots[offset].value) for offset in offsets]
        details = {"next_offset": end, "stable_bound": stable, "records": records}
        self.history.complete(operation, OK, 1.0, **details)
        return self

    def findings(self) -> list[str]:
        return list(check_table(self.evidence))


def test_tombstone_is_identified_by_its_header() -> None:
    assert [slot.value for slot in PartitionModel.read(written()).slots.values()] == [
        b"0",
        b"1",
        b"2",
        b"4",
        b"5",
        b"6",
    ]
    records, position = consumer_view(b"".join(written()), [(8, 2)], fetch_offset=1, committed=True)
    assert (records, position) == ([(1, b"1"), (4, b"4"), (5, b"5"), (6, b"6")], END)
    emptied = encode_batch([], timestamp=1, producer_id=8, producer_epoch=0, attributes=TRANSACTIONAL | CONTROL)
    assert consumer_view(emptied, [], fetch_offset=0, committed=True) == ([], 0)
    (batch,) = read_batches(written()[3])
    assert is_part(replace(batch, deltas=[1], records=[(b"b", None)]), batch)
    assert not is_part(replace(batch, deltas=[1], records=[(b"b", None)], marks={1: b"other"}), batch)


def test_reader_must_receive_the_newest_record_of_each_key_only() -> None:
    assert Case().read(0, END, 0, 1, 4, 5, 6).findings() == []
    assert Case().read(0, END, 0, 1, 2, 4, 5, 6, isolation=READ_UNCOMMITTED).findings() == []
    assert Case().read(0, 2, 1).read(2, END, 5, 6).findings() == []
    assert Case().read(0, END, 6).findings() == []
    assert Case().read(0, 4).findings() == []


@pytest.mark.parametrize(
    ("end", "offsets", "stable", "finding"),
    [
        (END, (1, 5), END, "got offset 1 for key b'a', not the value at 6"),
        (END, (4, 6), END, "got offset 4 for key b'b', not the tombstone at 5"),
        (4, (), 6, "got nothing for key b'a', not the value at 1"),
        (4, (0, 2), 6, "got offset 0 for key b'a', not the value at 1"),
        (END, (1, 0, 5, 6), END, "received offset 0 of table-0 after 1"),
    ],
)
def test_missing_newest_record_is_reported(end: int, offsets: tuple[int, ...], stable: int, finding: str) -> None:
    findings = Case().read(0, end, *offsets, isolation=READ_UNCOMMITTED, stable=stable).findings()
    assert any(finding in reported for reported in findings), findings


def test_each_pass_over_the_topic_is_checked_separately() -> None:
    assert Case().read(0, END, 1, 5, 6).read(0, END, 5, 6).findings() == []
    assert len(Case().read(0, END, 1, 5, 6).read(0, END, 5).findings()) == 1


def test_expired_tombstone_may_be_removed_during_a_read() -> None:
    slow = Case(retention_ms=500).read(0, 5, 4).read(5, END, 6)
    assert slow.findings() == []
    assert len(Case().read(0, 5, 4).read(5, END, 6).findings()) == 1


def test_compacted_log_may_lack_the_coordinator_epoch() -> None:
    rows = [SnapshotRow(7, 0, 1, -1, -1), SnapshotRow(8, 0, 0, -1, -1)]
    case = Case()
    case.evidence.described_producers = {TABLE: rows}
    assert list(check_producer_state(case.evidence)) == []
    case.evidence.compacted.clear()
    assert len(list(check_producer_state(case.evidence))) == 1
    case.evidence.compacted[TABLE] = DAY_MS
    rows[0].last_sequence = 0
    assert len(list(check_producer_state(case.evidence))) == 1
