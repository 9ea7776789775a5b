"""Judgment of the exactly-once campaign: rows, samples, planned faults, damaged checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.eos.campaign import unjudged
from odradek.pipeline.eos.checkpoint import delete_last_commit
from odradek.pipeline.eos.driver_process import Event
from odradek.pipeline.eos.judgment import judge
from odradek.pipeline.eos.plan import End, Fault, Mode, generate
from odradek.pipeline.eos.record import Record, durations
from odradek.pipeline.eos.visibility import NO_BATCH, Row, Visibility
from odradek.pipeline.eos_campaign import steps_of

if TYPE_CHECKING:
    from pathlib import Path


def row(number: int, batch: int, run: int = 1, offset: int | None = None) -> Row:
    return Row(0, number if offset is None else offset, b"%d" % number, batch, run)


SOURCE = [b"0", b"1", b"2", b"3"]
ROWS = [row(0, 0), row(1, 0), row(2, 1), row(3, 1)]


def sampled(*samples: tuple[int, int, list[Row]], complete: bool = True, two_phase: bool = False) -> Visibility:
    """Add samples: last batch of the ledger before and after, and the new rows."""
    visibility = Visibility(two_phase=two_phase)
    for before, after, rows in samples:
        visibility.read(rows)
        visibility.sampled(before, after, complete=complete)
    return visibility


def test_rows_that_are_visible_once_pass() -> None:
    judgment = judge(SOURCE, ROWS, sampled((NO_BATCH, NO_BATCH, []), (0, 0, ROWS[:2]), (1, 1, ROWS[2:])))
    assert judgment.exactly_once
    assert (judgment.expected, judgment.visible, judgment.batches, judgment.findings) == (4, 4, 2, ())


def test_no_row_at_all_does_not_pass() -> None:
    assert not judge([], [], Visibility()).exactly_once


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        (ROWS[:3], "lost"),
        ([*ROWS, row(3, 1, offset=9)], "duplicated"),
        ([*ROWS, Row(0, 9, b"aborted", 1, 1)], "foreign"),
        ([*ROWS[:3], row(3, 1, run=2)], "mixed"),
    ],
)
def test_each_wrong_row_is_found(rows: list[Row], field: str) -> None:
    judgment = judge(SOURCE, rows, Visibility())
    assert not judgment.exactly_once
    found = {name: getattr(judgment, name) for name in ("lost", "duplicated", "foreign", "mixed", "split")}
    assert found == {name: int(name == field) for name in found}
    assert len(judgment.findings) == 1


def test_row_that_a_sample_read_and_that_vanished_is_found() -> None:
    assert judge(SOURCE, ROWS, sampled((1, 1, [*ROWS, row(4, 1)]))).vanished == 1


def test_batch_in_part_after_its_markers_is_split() -> None:
    visibility = sampled((0, 0, ROWS[:1]), (0, 0, ROWS[1:2]))
    assert judge(SOURCE, ROWS, visibility).split == 1
    assert visibility.windows({0: 2}) == 1


def test_batch_in_part_before_its_last_marker_is_allowed() -> None:
    visibility = sampled((0, 0, ROWS[:1]), complete=False)
    assert judge(SOURCE, ROWS, visibility).split == 0
    assert visibility.windows({0: 2}) == 1


def test_batch_that_was_never_sampled_as_the_last_one_is_judged_with_the_next_one() -> None:
    visibility = sampled((1, 1, ROWS[1:]))
    assert visibility.split({0: 2, 1: 2}) == [0]


def test_visible_row_without_a_decision_is_found() -> None:
    assert judge(SOURCE, ROWS, sampled((0, 0, ROWS[:3]))).undecided == 1
    assert judge(SOURCE, ROWS, sampled((0, 1, ROWS[:3]))).undecided == 0


def test_row_of_a_failed_sample_is_judged_in_the_next_one() -> None:
    visibility = Visibility()
    assert visibility.read(ROWS) == 1  # the second look-up of the ledger fails, so `sampled` is not called
    assert visibility.read([]) == 1
    visibility.sampled(0, 0, complete=True)
    assert len(visibility.undecided) == 1
    assert visibility.read([]) == NO_BATCH


def test_campaign_whose_samples_judged_too_few_batches_proves_too_little() -> None:
    rows = [*ROWS, row(4, 2)]
    assert unjudged(rows, sampled((2, 2, rows))) == []
    assert unjudged(rows, sampled((1, 2, rows))) == []
    assert unjudged(rows, sampled((2, 2, rows), complete=False)) == ["3 visible batches were not judged in a sample"]
    assert unjudged(rows, Visibility()) == ["3 visible batches were not judged in a sample"]


def test_last_batch_of_a_two_phase_commit_may_be_visible_in_part() -> None:
    assert sampled((0, 0, ROWS[:1]), two_phase=True).split({0: 2}) == []
    assert sampled((1, 1, ROWS[:1]), two_phase=True).split({0: 2, 1: 2}) == [0]


def test_batch_of_a_two_phase_commit_is_not_judged_while_markers_are_missing() -> None:
    assert sampled((1, 1, ROWS[:1]), two_phase=True, complete=False).split({0: 2, 1: 2}) == []


def event(name: str, at: float, run: int = 1, batch: int = 0, **details: object) -> Event:
    return Event(run, name, at, {"batch": batch, **details})


def test_planned_faults_that_are_missing_are_named() -> None:
    plan = generate(1, Mode.TXN, steps_of(Mode.TXN), 4)
    record = Record()
    planned = {*(str(run.end) for run in plan), *(str(run.fault) for run in plan if run.fault)}
    assert all(any(kind in line for line in record.missing(plan)) for kind in planned)
    for run in plan:
        record.ended(run, 0.0)
        if run.fault is not None:
            record.faults[run.fault] += 1
    assert record.missing(plan) == []
    record.step_kills["WRITTEN"] -= 1
    record.faults[Fault.LEADER] -= 1
    record.ends[End.LATE] -= 1
    assert record.missing(plan) == [
        f"1 of 2 times: {End.LATE}",
        f"1 of 2 times: {Fault.LEADER}",
        "1 of 2 kills after step WRITTEN",
    ]


def test_durations_are_those_of_undisturbed_batches() -> None:
    record = Record()
    for batch in range(4):
        start = 10.0 * batch
        record.event(event("step", start, batch=batch, step="OPENED"))
        record.event(event("step", start + 1, batch=batch, step="BEGUN"))
        if batch == 2:
            record.event(event("paused", start + 1, batch=batch, step="BEGUN"))
        record.event(event("batch", start + 3, batch=batch))
    record.event(event("step", 50.0, batch=4, step="OPENED"))
    record.event(event("batch", 50.1, batch=4))
    batches = record.undisturbed()
    assert [times.batch for times in batches] == [1, 3]
    assert [times.batch for times in record.batches_of(1) if not times.written] == [4]
    assert durations(batches, "OPENED", None) == (3.0, 3.0)
    assert durations(batches, "OPENED", "BEGUN") == (1.0, 1.0)
    assert durations(batches, "LEDGER_SENT", None) == (0.0, 0.0)


def test_second_attempt_of_a_batch_is_counted_and_its_duration_left_out() -> None:
    record = Record()
    for batch, begins in enumerate((1, 2, 1)):
        for _ in range(begins):
            record.event(event("step", 1.0, batch=batch, step="BEGUN"))
        record.event(event("step", 2.0, batch=batch, step="WRITTEN"))
        record.event(event("batch", 3.0, batch=batch))
    record.event(event("step", 1.0, run=2, batch=3, step="BEGUN"))
    assert record.repeated_attempts == 1
    assert [times.batch for times in record.undisturbed()] == [2]


def test_last_commit_is_deleted_from_the_checkpoint(tmp_path: Path) -> None:
    for log, batches in (("commits", ("8", "9", "10")), ("offsets", ("9", "10"))):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / batch).touch()
            (tmp_path / log / f".{batch}.crc").touch()
    assert delete_last_commit(tmp_path) == 10
    assert sorted(entry.name for entry in (tmp_path / "commits").iterdir()) == [".8.crc", ".9.crc", "8", "9"]
    with pytest.raises(RuntimeError, match="batch 10 is not complete"):
        delete_last_commit(tmp_path)
