"""Timeline of a transactional id, and selection of decoded records of `__transaction_state`."""

from __future__ import annotations

from odradek.client import TopicPartition
from odradek.client.consumer.transitions import Transition
from odradek.console.model.transition_log import Run, newest, timeline
from odradek.protocol.txn_state import TxnState

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def row(state: TxnState | None, offset: int, at_ms: int, *partitions: TopicPartition, name: str = "id") -> Transition:
    is_open = state not in {TxnState.EMPTY, None}
    return Transition(
        name, 3, offset, at_ms, state, start_ms=100 if is_open else -1, update_ms=at_ms, partitions=partitions
    )


def outcomes(runs: list[Run]) -> list[str]:
    return [run.outcome for run in runs]


def test_records_of_a_transaction_are_one_run_with_durations_and_added_partitions() -> None:
    [run, first] = timeline(
        [
            row(TxnState.EMPTY, 0, 50),
            row(TxnState.ONGOING, 1, 100, FIRST),
            row(TxnState.ONGOING, 2, 130, FIRST, SECOND),
            row(TxnState.PREPARE_COMMIT, 3, 160, FIRST, SECOND),
            row(TxnState.COMPLETE_COMMIT, 4, 165),
        ]
    )
    assert (first.outcome, first.begin_ms, first.end_ms) == ("initialized", 50, 50)
    assert (run.outcome, run.begin_ms, run.end_ms, run.lasted_ms(9_999)) == ("committed", 100, 165, 65)
    assert [step.lasted_ms for step in run.steps] == [30, 30, 5, None]
    assert [step.added for step in run.steps] == [(FIRST,), (SECOND,), (), ()]
    assert (run.partitions, run.ongoing_ms, run.marking_ms) == ((FIRST, SECOND), 60, 5)


def test_transactions_of_an_id_are_separate_runs_with_the_newest_first() -> None:
    runs = timeline(
        [
            row(TxnState.ONGOING, 0, 100, FIRST),
            row(TxnState.PREPARE_ABORT, 1, 110, FIRST),
            row(TxnState.COMPLETE_ABORT, 2, 120),
            row(None, 3, 130),
            row(TxnState.EMPTY, 4, 140),
            row(TxnState.ONGOING, 5, 150, SECOND),
        ]
    )
    assert outcomes(runs) == ["ongoing", "initialized", "removed", "aborted"]
    assert runs[0].lasted_ms(400) == 300
    assert (runs[0].end_ms, runs[0].ongoing_ms) == (None, None)


def test_records_whose_predecessors_were_compacted_begin_a_run() -> None:
    assert outcomes(
        timeline([row(TxnState.COMPLETE_COMMIT, 9, 120), row(TxnState.PREPARE_COMMIT, 12, 130, FIRST)])
    ) == [
        "committing",
        "committed",
    ]


def test_a_repeated_record_of_a_new_coordinator_stays_in_its_run() -> None:
    prepared = [row(TxnState.PREPARE_COMMIT, offset, 110, FIRST) for offset in (1, 2)]
    [run] = timeline([row(TxnState.ONGOING, 0, 100, FIRST), *prepared, row(TxnState.COMPLETE_COMMIT, 3, 120)])
    assert (run.outcome, len(run.steps)) == ("committed", 4)


def test_newest_selects_by_part_of_the_id_or_by_the_exact_id() -> None:
    rows = [row(TxnState.EMPTY, number, number, name=name) for number, name in enumerate(("pay-1", "pay-10", "x"))]
    assert [each.transactional_id for each in newest(rows, "PAY", exact=False, rows_max=9)] == ["pay-10", "pay-1"]
    assert [each.transactional_id for each in newest(rows, "pay-1", exact=True, rows_max=9)] == ["pay-1"]
    assert [each.transactional_id for each in newest(rows, "", exact=False, rows_max=2)] == ["x", "pay-10"]


def test_records_of_one_id_are_in_the_order_of_offsets_also_if_a_clock_went_back() -> None:
    rows = [row(TxnState.ONGOING, 1, 200), row(TxnState.PREPARE_COMMIT, 2, 150)]
    assert [each.offset for each in newest(rows, "id", exact=True, rows_max=9)] == [2, 1]
