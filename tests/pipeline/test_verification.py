"""Verification of a run: each kind of error is detected."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import pytest

from odradek.pipeline.demo.verification import (
    VerificationResult,
    expected_delays,
    hours_not_once,
    uncommitted_rows,
    verify,
    verify_copies,
    wrong_groups,
)
from odradek.pipeline.flights.plan import Intent, attempt_name
from odradek.pipeline.flights.progress_topic import Progress
from odradek.pipeline.flights.source import canonical, load_flights

SOURCE = load_flights(600)
HOUR_OF = SOURCE["time_hour"].map({departs: hour for hour, departs in enumerate(sorted(SOURCE["time_hour"].unique()))})
HOURS = int(HOUR_OF.max()) + 1
PROGRESS = [
    Progress(hour, attempt_name(hour, 1, hour, Intent.COMMIT), int(HOUR_OF.eq(hour).sum())) for hour in range(HOURS)
]
ACKNOWLEDGED = [record.attempt for record in PROGRESS]
COUNTS = ("lost", "duplicated", "aborted", "altered", "wrong_groups", "wrong_hours", "lost_commits")


def correct_rows() -> pd.DataFrame:
    attempts = HOUR_OF.map({record.hour: record.attempt for record in PROGRESS})
    return SOURCE.assign(attempt=attempts).sample(frac=1, random_state=1)


def verified(
    seen: pd.DataFrame, *, progress: list[Progress] | None = None, delays: pd.DataFrame | None = None
) -> VerificationResult:
    groups = expected_delays(SOURCE) if delays is None else delays
    return verify(SOURCE, seen, groups, PROGRESS if progress is None else progress, ACKNOWLEDGED)


def counts(result: VerificationResult) -> dict[str, int]:
    table = asdict(result)
    return {name: table[name] for name in COUNTS if table[name]}


def test_correct_rows_in_any_order_pass() -> None:
    result = verified(correct_rows())
    assert (result.expected, result.seen, result.findings) == (600, 600, ())
    assert result.passed


def test_correct_copies_pass_and_each_wrong_copy_is_found() -> None:
    copies = correct_rows().assign(run=1)
    copies = copies.assign(batch=copies["row"] // 100)
    result = verify_copies(SOURCE, copies, PROGRESS)
    assert result.passed
    assert (result.rows.seen, result.batches, result.mixed) == (600, 6, 0)
    assert verify_copies(SOURCE, copies.query("row != 17"), PROGRESS).rows.lost == 1
    assert verify_copies(SOURCE, pd.concat([copies, copies.query("row == 17")]), PROGRESS).rows.duplicated == 1
    mixed = verify_copies(SOURCE, copies.assign(run=copies["row"].eq(17).astype(int)), PROGRESS)
    assert (mixed.passed, mixed.mixed) == (False, 1)


def test_missing_row_is_lost() -> None:
    result = verified(correct_rows().query("row != 17"))
    assert counts(result) == {"lost": 1}
    assert result.findings == ("lost row: 17",)
    assert not result.passed


def test_repeated_row_is_duplicated() -> None:
    rows = correct_rows()
    result = verified(pd.concat([rows, rows[rows["row"] == 5], rows[rows["row"] == 5]]))
    assert counts(result) == {"duplicated": 2}
    assert result.seen == 602
    assert not result.passed


def test_row_of_an_attempt_without_progress_record_is_aborted() -> None:
    rows = correct_rows()
    other = rows[rows["row"] == 5].assign(attempt=attempt_name(0, 1, 99, Intent.COMMIT))
    assert counts(verified(pd.concat([rows, other]))) == {"aborted": 1}


def test_row_that_only_an_aborted_attempt_contains_is_aborted_and_lost() -> None:
    rows = correct_rows()
    rows.loc[rows["row"] == 5, "attempt"] = attempt_name(0, 1, 99, Intent.ABORT)
    assert counts(verified(rows)) == {"aborted": 1, "lost": 1}


def test_aborted_transaction_is_detected_even_if_its_progress_record_was_read() -> None:
    rows = correct_rows()
    aborted = Progress(0, attempt_name(0, 1, 99, Intent.ABORT), 6)
    extra = rows[rows["attempt"] == PROGRESS[0].attempt].assign(attempt=aborted.attempt)
    result = verified(pd.concat([rows, extra]), progress=[aborted, *PROGRESS])
    assert counts(result) == {"aborted": PROGRESS[0].rows, "wrong_hours": 1}


def test_row_without_an_attempt_is_aborted() -> None:
    rows = correct_rows()
    rows.loc[rows["row"] == 5, "attempt"] = None
    assert counts(verified(rows)) == {"aborted": 1, "lost": 1}


@pytest.mark.parametrize(
    ("column", "value"), [("dep_delay", 999), ("dep_delay", None), ("carrier", "ZZ"), ("tailnum", None)]
)
def test_row_with_a_changed_cell_is_altered(column: str, value: object) -> None:
    rows = correct_rows()
    assert not rows.loc[rows["row"] == 5, column].isna().any()
    rows[column] = rows[column].where(rows["row"] != 5, value)
    assert counts(verified(rows)) == {"altered": 1}


def test_row_that_is_not_in_the_source_is_altered() -> None:
    rows = correct_rows()
    assert counts(verified(pd.concat([rows, rows[rows["row"] == 5].assign(row=600)]))) == {"altered": 1}


def test_missing_values_are_equal() -> None:
    cancelled = SOURCE["dep_delay"].isna()
    assert cancelled.any()
    rows = correct_rows().astype({"dep_delay": "float64"})  # as Spark returns a column with nulls
    assert verified(rows).passed


def test_hour_that_is_not_committed_exactly_once_is_wrong() -> None:
    assert hours_not_once([*PROGRESS, PROGRESS[3]], HOURS) == [3]
    assert hours_not_once(PROGRESS[:-1], HOURS) == [HOURS - 1]
    assert hours_not_once([*PROGRESS, Progress(HOURS, "x", 1)], HOURS) == [HOURS]
    assert not verified(correct_rows(), progress=[*PROGRESS, PROGRESS[3]]).passed


def test_groups_with_wrong_aggregates_are_returned() -> None:
    right = expected_delays(SOURCE)
    assert wrong_groups(right, right.sample(frac=1, random_state=1)) == []
    for column in ("flights", "mean", "p95"):
        wrong = right.copy()
        wrong[column] = [right[column][0] + 1, *right[column][1:]]
        assert wrong_groups(right, wrong) == [f"{right['carrier'][0]}-{right['origin'][0]}"]
    assert len(wrong_groups(right, right[1:])) == 1
    assert counts(verified(correct_rows(), delays=right[1:])) == {"wrong_groups": 1}


def test_acknowledged_commit_that_was_lost_and_repeated_is_a_lost_commit() -> None:
    again = Progress(3, attempt_name(3, 2, 1, Intent.COMMIT), PROGRESS[3].rows)
    rows = correct_rows().replace({"attempt": {PROGRESS[3].attempt: again.attempt}})
    result = verified(rows, progress=[*PROGRESS[:3], again, *PROGRESS[4:]])
    assert counts(result) == {"lost_commits": 1}
    assert not result.passed


def test_run_without_rows_or_without_expected_rows_does_not_pass() -> None:
    empty = correct_rows()[:0]
    assert counts(verified(empty)) == {"lost": 600}
    assert not verify(SOURCE[:0], empty, expected_delays(SOURCE[:0]), [], []).passed


def test_uncommitted_rows_are_those_of_attempts_without_a_commit() -> None:
    written = {record.attempt: record.rows for record in PROGRESS} | {attempt_name(1, 1, 9, Intent.ABORT): 52, "?": 3}
    assert uncommitted_rows(written, PROGRESS) == 55


def test_source_is_numbered_in_order_of_departure() -> None:
    assert len(canonical(SOURCE)) == 600
    assert list(SOURCE["row"]) == list(range(600))
    assert SOURCE["time_hour"].is_monotonic_increasing
