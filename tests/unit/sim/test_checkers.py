"""Checkers against hand-written histories: a correct one, and one per violation, which the checker must report."""

import struct
from collections.abc import Callable

import pytest

from tests.sim.checkers.batches import Unreadable, read_batches
from tests.sim.checkers.coordinator_log import COMPLETE_ABORT, EMPTY, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.checkers.visibility import consumer_view
from tests.sim.history import ADD, DECIDE, FAIL, FETCH, INFO, INIT, LIST, OK
from tests.sim.workloads.encode import encode_batch, encode_marker
from tests.sim.world import LateFrame
from tests.support.sim_case import P0, P1, PID, TID, Case, values


def abort_second(case: Case) -> None:
    """Add a second, aborted transaction; its record c is at offset 2 of the first partition."""
    case.produce(P0, values("c"), 0, offset=2, transaction=2, producer_epoch=1)
    case.write(P0, values("c"), 0, epoch=1)
    case.decide(ONGOING, P0, epoch=1)
    case.end(commit=False, epoch=1, transaction=2)
    case.decide(PREPARE_ABORT, P0, epoch=2)
    case.mark(P0, commit=False, epoch=2)
    case.decide(COMPLETE_ABORT, epoch=2)


def test_correct_history_has_no_findings() -> None:
    case = Case().good()
    abort_second(case)
    case.read(P0, 0, 4, (0, "a"), (2, "c"), isolation=0)
    case.read(P0, 0, 4, (0, "a"))
    case.op(LIST, partition=P0, isolation=1, result_offset=10)
    case.changes = {
        "described_producers": {P0: [SnapshotRow(PID, 2, -1, 0, -1)]},
        "described_transactions": {TID: ("CompleteAbort", PID, 2)},
    }
    assert case.findings() == []


def lost(case: Case) -> None:
    case.produce(P0, values("z"), 1, offset=7, transaction=-1, producer_id=5)


def other_value(case: Case) -> None:
    case.produce(P0, values("z"), 1, offset=0, transaction=-1, producer_id=5)


def twice(case: Case) -> None:
    case.write(P1, values("a"), 0, pid=77, transactional=False)


def unknown(case: Case) -> None:
    case.write(P1, values("ghost"), 0, pid=77, transactional=False)


def refused_yet_written(case: Case) -> None:
    case.produce(P1, values("n"), 0, outcome=FAIL, producer_id=77, transaction=-1)
    case.write(P1, values("n"), 0, pid=77, transactional=False)


def out_of_order(case: Case) -> None:
    for offset, (value, sequence) in enumerate((("y", 1), ("x", 0)), start=2):
        case.write(P0, values(value), sequence, pid=77, transactional=False)
        case.produce(P0, values(value), 1 - sequence, offset=5 - offset, producer_id=77, transaction=-1)


def aborted_read(case: Case) -> None:
    abort_second(case)
    case.read(P0, 0, 4, (0, "a"), (2, "c"))


def early_read(case: Case) -> None:
    case.read(P0, 0, 1, (0, "a"), stable_bound=0, last_stable_offset=0)


def early_read_further_on(case: Case) -> None:
    case.read(P0, 1, 2, (1, "b"), stable_bound=1, last_stable_offset=1)


def skipped(case: Case) -> None:
    case.read(P0, 0, 2)


def skipped_by_dirty_reader(case: Case) -> None:
    abort_second(case)
    case.read(P0, 0, 4, (0, "a"), isolation=0)


def out_of_range(case: Case, *, offset: int = 9, deposed: bool = False, leader_epoch: int = -1) -> None:
    case.changes = {"replicated": True}
    case.op(FETCH, outcome=INFO, partition=P0, offset=offset, error=1, deposed=deposed, leader_epoch=leader_epoch)


def out_of_range_behind_the_fence(case: Case) -> None:
    case.read(P0, 8, 9, leader_epoch=3)
    out_of_range(case, deposed=True, leader_epoch=4)


def first_offset_out_of_range(case: Case) -> None:
    out_of_range(case, offset=0, deposed=True, leader_epoch=-1)


def out_of_range_without_another_leader(case: Case) -> None:
    out_of_range(case, deposed=True)
    case.changes = {"replicated": False}


def read_other_value(case: Case) -> None:
    case.read(P0, 0, 2, (0, "b"), isolation=0)


def torn(case: Case) -> None:
    """Commit one half of a transaction and abort the other (found by Jepsen in Kafka)."""
    case.produce(P0, values("d"), 0, offset=2, transaction=2, producer_epoch=1)
    case.produce(P1, values("e"), 0, offset=2, transaction=2, producer_epoch=1)
    for partition, value in ((P0, "d"), (P1, "e")):
        case.write(partition, values(value), 0, epoch=1)
    case.end(commit=True, epoch=1, transaction=2, outcome=INFO)
    case.mark(P0, commit=True, epoch=2)
    case.mark(P1, commit=False, epoch=2)


def commit_lost(case: Case) -> None:
    abort_second(case)
    case.history.operations[-1].commit = True


def abort_lost(case: Case) -> None:
    case.history.operations[3].commit = False


def commit_without_request(case: Case) -> None:
    case.history.operations[3].outcome = FAIL


def hanging(case: Case) -> None:
    case.produce(P0, values("h"), 0, offset=2, transaction=2, producer_epoch=1)
    case.write(P0, values("h"), 0, epoch=1)


def decision_ignored(case: Case) -> None:
    case.op(DECIDE, transactional_id=TID, transaction=1, commit=False)


def markers_of_client(case: Case) -> None:
    case.entries[2].producer_epoch = 2


def client_not_raised(case: Case) -> None:
    for entry in case.entries[1:3]:
        entry.next_producer_id, entry.next_producer_epoch, entry.client_version = PID, 1, 2


def kept(case: Case) -> None:
    case.entries[1].next_producer_id, case.entries[1].next_producer_epoch = PID, 1
    case.entries[2].next_producer_id, case.entries[2].next_producer_epoch = PID, 2
    case.entries[2].client_version, case.entries[3].producer_epoch = 2, 2


def zombie_produce(case: Case) -> None:
    case.op(INIT, transactional_id=TID, generation=2, result_producer_id=PID, result_producer_epoch=2)
    case.produce(P0, values("w"), 0, offset=2, transaction=2, producer_epoch=1)


def zombie_visible(case: Case) -> None:
    """A Produce request from before the fence, with unknown outcome, is written after the fence."""
    case.produce(P0, values("w"), 0, outcome=INFO, transaction=-1, producer_epoch=1)
    fence = case.op(INIT, transactional_id=TID, generation=1, result_producer_id=PID, result_producer_epoch=3)
    case.write(P0, values("w"), 0, epoch=1)
    case.decide(ONGOING, P0, epoch=1)
    case.decide(PREPARE_COMMIT, P0, epoch=2)
    case.mark(P0, commit=True, epoch=2)
    case.changes = {"written_at": {b"w": fence.completed}}


def zombie_add(case: Case) -> None:
    case.op(INIT, transactional_id=TID, generation=1, result_producer_id=PID, result_producer_epoch=2)
    case.op(ADD, transactional_id=TID, generation=1, transaction=2, producer_id=PID, producer_epoch=1, partitions=(P0,))


def zombie_end(case: Case) -> None:
    case.op(INIT, transactional_id=TID, generation=2, result_producer_id=PID + 1, result_producer_epoch=0)
    case.end(commit=True, epoch=0, transaction=2)


def old_epoch_after_end(case: Case) -> None:
    case.produce(P0, values("w"), 0, offset=2, transaction=2, producer_epoch=0)


def watermark_back(case: Case) -> None:
    case.op(LIST, partition=P0, isolation=0, result_offset=9)
    case.op(LIST, partition=P0, isolation=0, result_offset=8)


def stable_back(case: Case) -> None:
    case.op(LIST, partition=P0, isolation=1, result_offset=9)
    case.op(LIST, partition=P0, isolation=1, result_offset=8)


def stable_above_high(case: Case) -> None:
    case.read(P0, 2, 2, high_watermark=1, last_stable_offset=2)


def stable_too_high(case: Case) -> None:
    case.op(LIST, partition=P0, isolation=1, result_offset=3).stable_bound = 2


def offset_gap(case: Case) -> None:
    case.ends[P0] += 1
    case.write(P0, values("q"), 0, pid=77, transactional=False)


def old_epoch_after_marker(case: Case) -> None:
    case.write(P0, values("q"), 1, epoch=0)


def sequence_gap(case: Case) -> None:
    case.write(P0, values("q"), 1, epoch=1)


def late_start(case: Case) -> None:
    case.produce(P0, values("q"), 3, offset=2, transaction=2, producer_id=77)
    case.write(P0, values("q"), 3, pid=77)


def epoch_inside_transaction(case: Case) -> None:
    case.write(P0, values("q"), 0, epoch=1)
    case.write(P0, values("r"), 0, epoch=2)


def old_coordinator(case: Case) -> None:
    case.mark(P0, commit=True, epoch=1, coordinator_epoch=3)
    case.mark(P0, commit=True, epoch=1, coordinator_epoch=2)


def illegal_transition(case: Case) -> None:
    case.decide(PREPARE_COMMIT, epoch=1)


def epoch_back(case: Case) -> None:
    case.decide(EMPTY, epoch=0)


def left_prepared(case: Case) -> None:
    del case.entries[-1]


def marker_missing(case: Case) -> None:
    del case.logs[P1][-1]


def marker_undecided(case: Case) -> None:
    case.mark(P1, commit=False, epoch=9)


def marker_elsewhere(case: Case) -> None:
    case.entries[1].partitions = case.entries[2].partitions = frozenset({P0})


def overtime(case: Case) -> None:
    case.entries[2].updated_ms = 1000 + 5000 + 100 + 2001


def producer_state(case: Case) -> None:
    case.changes = {"described_producers": {P0: [SnapshotRow(PID, 0, 0, -1, 0)]}}


def producer_unknown(case: Case) -> None:
    case.changes = {"described_producers": {P0: []}}


def transaction_state(case: Case) -> None:
    case.changes = {"described_transactions": {TID: ("Ongoing", PID, 0)}}


@pytest.mark.parametrize(
    ("violate", "finding"),
    [
        (lost, "I1 lost"),
        (other_value, "I3 two values"),
        (twice, "I2 duplicate"),
        (unknown, "I2 unknown"),
        (refused_yet_written, "I2 refused yet written"),
        (out_of_order, "I4 order"),
        (aborted_read, "I5 aborted read"),
        (early_read, "I5 early read"),
        (early_read_further_on, "I5 early read"),
        (skipped, "I4 skipped"),
        (skipped_by_dirty_reader, "I4 skipped"),
        (read_other_value, "I3 read"),
        (out_of_range, "I4 refused read: error 1"),
        (out_of_range_behind_the_fence, "I4 refused read: error 1"),
        (first_offset_out_of_range, "I4 refused read: error 1"),
        (out_of_range_without_another_leader, "I4 refused read: error 1"),
        (torn, "I6 torn"),
        (commit_lost, "I6 commit lost"),
        (abort_lost, "I6 abort lost"),
        (commit_without_request, "I6 commit without request"),
        (hanging, "I6 hanging"),
        (decision_ignored, "I6 decision ignored"),
        (zombie_produce, "I8 not fenced"),
        (zombie_visible, "I8 not fenced: produce by (1000, 1) of bank (event 9) became visible"),
        (zombie_add, "I8 not fenced"),
        (zombie_end, "I8 not fenced"),
        (old_epoch_after_end, "I8 not fenced"),
        (watermark_back, "I9 high watermark"),
        (stable_back, "I9 last stable offset"),
        (stable_above_high, "I9 last stable offset 2 above"),
        (stable_too_high, "the last stable offset was at most 2"),
        (offset_gap, "I13"),
        (old_epoch_after_marker, "I13"),
        (sequence_gap, "writes sequence 1, not 0"),
        (late_start, "a new TV2 producer starts with sequence 3"),
        (epoch_inside_transaction, "inside the transaction"),
        (old_coordinator, "coordinator epoch 2 after 3"),
        (illegal_transition, "PrepareCommit after CompleteCommit"),
        (epoch_back, "epoch 0 of producer 1000 after 1"),
        (markers_of_client, "(1000, 2) in PrepareCommit after (1000, 0) in Ongoing"),
        (client_not_raised, "the client still has (1000, 1)"),
        (left_prepared, "left in PrepareCommit"),
        (marker_missing, "its marker of"),
        (marker_undecided, "I14 undecided marker"),
        (marker_elsewhere, "I14 undecided marker"),
        (overtime, "I15"),
        (producer_state, "I16 DescribeProducers"),
        (producer_unknown, "lacks"),
        (transaction_state, "I16 DescribeTransactions"),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", None),
)
def test_each_violation_is_reported(violate: Callable[[Case], None], finding: str) -> None:
    case = Case().good()
    violate(case)
    assert any(finding in reported for reported in case.findings()), case.findings()


def test_late_marker_without_a_transaction_is_a_finding_unless_producers_are_evicted() -> None:
    case = Case().good()
    old_coordinator(case)
    case.changes = {"evicts_producers": True}
    assert not any("I13" in finding for finding in case.findings())
    case.write(P1, values("q"), 0, epoch=3)
    case.mark(P1, commit=True, epoch=1)
    assert any("has epoch 1 after 3" in finding for finding in case.findings())


@pytest.mark.parametrize(("read_in", "refused_in"), [(3, -1), (-1, 3), (4, 3)])
def test_deposed_leader_that_no_leader_epoch_fences_may_lack_an_offset(read_in: int, refused_in: int) -> None:
    case = Case().good()
    case.read(P0, 8, 9, leader_epoch=read_in)
    out_of_range(case, deposed=True, leader_epoch=refused_in)
    assert case.findings() == []


def test_kept_transaction_is_no_violation() -> None:
    case = Case().good()
    kept(case)
    case.op(DECIDE, transactional_id=TID, transaction=1, commit=True)
    assert case.findings() == []


@pytest.mark.parametrize(("later", "is_reported"), [(-1, False), (0, True)])
def test_duplicate_of_batch_from_before_the_fence_may_be_acknowledged_after_it(
    *, later: int, is_reported: bool
) -> None:
    """A paused, deposed leader has the batch and does not know the fence, so it acknowledges the duplicate."""
    case = Case().good()
    case.produce(P0, values("w"), 0, outcome=INFO, transaction=2, producer_epoch=1)
    case.write(P0, values("w"), 0, epoch=1)
    case.decide(ONGOING, P0, epoch=1)
    case.decide(PREPARE_ABORT, P0, epoch=2)
    case.mark(P0, commit=False, epoch=2)
    case.decide(COMPLETE_ABORT, epoch=2)
    fence = case.op(INIT, transactional_id=TID, generation=2, result_producer_id=PID, result_producer_epoch=3)
    case.decide(EMPTY, epoch=3)
    case.produce(P0, values("w"), 0, offset=2, transaction=2, producer_epoch=1)
    case.changes = {"written_at": {b"w": fence.completed + later}}
    assert any("I8" in finding for finding in case.findings()) is is_reported


def test_overlapping_watermark_samples_may_decrease() -> None:
    case = Case()
    slow = case.history.invoke(LIST, "slow", 0.0, partition=P0, isolation=0)
    case.op(LIST, partition=P0, isolation=0, result_offset=9)
    case.history.complete(slow, OK, 0.0, result_offset=8)
    assert case.findings() == []


def test_empty_fetch_from_former_leader_above_its_stable_offset_is_accepted() -> None:
    """The reader got its position from the new leader. The last stable offset of the former leader is below it."""
    case = Case().good()
    case.read(P0, 2, 2, high_watermark=2, last_stable_offset=0, stable_bound=0)
    assert case.findings() == []


def test_transaction_torn_by_late_classic_end_txn_is_not_a_finding() -> None:
    case = Case().good()
    torn(case)
    for operation in case.history.operations:
        if operation.transaction == 2:
            operation.generation = 1
    late = LateFrame(TID, PID, 1, commit=True, version=4, clock=case.history.operations[-1].invoked)
    assert any("torn" in reported for reported in case.findings())
    case.changes = {"late_frames": [late]}
    assert not any("torn" in reported for reported in case.findings())
    late.version = 5
    assert any("torn" in reported for reported in case.findings())
    for value, is_reported in (
        (b"a", True),
        (b"d", False),
    ):  # a value of another transaction, then one of this transaction
        case.changes = {"ended_late": {value: None}}
        assert any("torn" in reported for reported in case.findings()) is is_reported


def test_lost_record_of_a_visible_transaction_is_reported() -> None:
    """An unknown transaction outcome with one visible record means a commit: no acknowledged record may be lost."""
    case = Case().good()
    case.produce(P0, values("d"), 0, offset=2, transaction=2, producer_epoch=1)
    case.write(P0, values("d"), 0, epoch=1)
    case.mark(P0, commit=True, epoch=2)
    case.produce(P1, values("e"), 0, offset=2, transaction=2, producer_epoch=1)
    case.end(commit=True, epoch=1, transaction=2, outcome=INFO)
    assert any("I1 lost: e" in reported for reported in case.findings())


def test_batch_with_flipped_bit_is_unreadable() -> None:
    data = bytearray(encode_batch([(b"k", b"v")], timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0))
    assert [batch.records for batch in read_batches(bytes(data), check_crc=True)] == [[(b"k", b"v")]]
    data[-1] ^= 1
    with pytest.raises(Unreadable):
        list(read_batches(bytes(data), check_crc=True))
    data[-1] ^= 1
    assert not list(read_batches(bytes(data[:-1]), check_crc=True))


def test_reader_parses_batches_written_by_kafka() -> None:
    commit = bytes.fromhex(
        "000000000000000000000042ffffffff0240d514e90030000000000000018bcfe568000000018bcfe5680000000000000003e80005"
        "ffffffff000000012000000008000000010c00000000000700"
    )
    data = bytes.fromhex(
        "000000000000000000000043ffffffff024662694b0010000000010000018bcfe568000000018bcfe5680100000000000003e80005"
        "000000000000000210000000026b027600100002020104763200"
    )
    marker, batch = read_batches(commit + data, check_crc=True)
    assert (marker.is_control, marker.control_type, marker.coordinator_epoch, marker.producer_epoch) == (True, 1, 7, 5)
    assert (batch.records, batch.last_offset, batch.last_sequence) == ([(b"k", b"v"), (None, b"v2")], 1, 1)
    assert (
        encode_marker(producer_id=1000, producer_epoch=5, coordinator_epoch=7, commit=True, timestamp=1700000000000)
        == commit
    )


def test_consumer_view_skips_only_aborted_batches() -> None:
    case = Case()
    case.write(P0, values("one"), 0)
    case.write(P0, values("two"), 0, pid=2)
    case.mark(P0, commit=False, epoch=0)
    case.mark(P0, commit=True, epoch=0, pid=2)
    case.write(P0, values("three"), 1)
    data = b"".join(case.logs[P0])
    assert consumer_view(data, [(PID, 0)], fetch_offset=0, committed=True) == ([(1, b"two"), (4, b"three")], 5)
    assert consumer_view(data, [], fetch_offset=1, committed=False) == ([(1, b"two"), (4, b"three")], 5)
    assert consumer_view(struct.pack(">q", 0), [], fetch_offset=3, committed=True) == ([], 3)
