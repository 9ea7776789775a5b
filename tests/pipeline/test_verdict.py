"""The verdict must be able to say every bad thing that it claims to look for."""

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


def good_rows() -> pd.DataFrame:
    attempts = HOUR_OF.map({record.hour: record.attempt for record in PROGRESS})
    return SOURCE.assign(attempt=attempts).sample(frac=1, random_state=1)


def verdict(
    seen: pd.DataFrame, *, progress: list[Progress] | None = None, delays: pd.DataFrame | None = None
) -> VerificationResult:
    groups = expected_delays(SOURCE) if delays is None else delays
    return verify(SOURCE, seen, groups, PROGRESS if progress is None else progress, ACKNOWLEDGED)


def counts(found: VerificationResult) -> dict[str, int]:
    table = asdict(found)
    return {name: table[name] for name in COUNTS if table[name]}


def test_good_rows_in_any_order_pass() -> None:
    found = verdict(good_rows())
    assert (found.expected, found.seen, found.findings) == (600, 600, ())
    assert found.passed


def test_a_missing_row_is_lost() -> None:
    found = verdict(good_rows().query("row != 17"))
    assert counts(found) == {"lost": 1}
    assert found.findings == ("lost row: 17",)
    assert not found.passed


def test_a_row_seen_twice_is_duplicated() -> None:
    rows = good_rows()
    found = verdict(pd.concat([rows, rows[rows["row"] == 5], rows[rows["row"] == 5]]))
    assert counts(found) == {"duplicated": 2}
    assert found.seen == 602
    assert not found.passed


def test_a_row_of_an_attempt_without_progress_record_is_an_aborted_row() -> None:
    rows = good_rows()
    other = rows[rows["row"] == 5].assign(attempt=attempt_name(0, 1, 99, Intent.COMMIT))
    assert counts(verdict(pd.concat([rows, other]))) == {"aborted": 1}


def test_a_row_that_only_an_aborted_attempt_brought_is_lost_as_well() -> None:
    rows = good_rows()
    rows.loc[rows["row"] == 5, "attempt"] = attempt_name(0, 1, 99, Intent.ABORT)
    assert counts(verdict(rows)) == {"aborted": 1, "lost": 1}


def test_a_broker_that_shows_an_aborted_transaction_whole_cannot_hide_behind_its_progress_record() -> None:
    rows = good_rows()
    wrong = Progress(0, attempt_name(0, 1, 99, Intent.ABORT), 6)
    extra = rows[rows["attempt"] == PROGRESS[0].attempt].assign(attempt=wrong.attempt)
    found = verdict(pd.concat([rows, extra]), progress=[wrong, *PROGRESS])
    assert counts(found) == {"aborted": PROGRESS[0].rows, "wrong_hours": 1}


def test_a_null_attempt_is_not_a_committed_one() -> None:
    rows = good_rows()
    rows.loc[rows["row"] == 5, "attempt"] = None
    assert counts(verdict(rows)) == {"aborted": 1, "lost": 1}


@pytest.mark.parametrize(
    ("column", "value"), [("dep_delay", 999), ("dep_delay", None), ("carrier", "ZZ"), ("tailnum", None)]
)
def test_a_changed_cell_is_an_altered_row(column: str, value: object) -> None:
    rows = good_rows()
    assert not rows.loc[rows["row"] == 5, column].isna().any()
    rows[column] = rows[column].where(rows["row"] != 5, value)
    assert counts(verdict(rows)) == {"altered": 1}


def test_a_row_that_the_source_does_not_have_is_altered() -> None:
    rows = good_rows()
    assert counts(verdict(pd.concat([rows, rows[rows["row"] == 5].assign(row=600)]))) == {"altered": 1}


def test_missing_equals_missing() -> None:
    cancelled = SOURCE["dep_delay"].isna()
    assert cancelled.any()
    rows = good_rows().astype({"dep_delay": "float64"})  # as Spark returns a column with nulls
    assert verdict(rows).passed


def test_an_hour_committed_twice_or_never_is_wrong() -> None:
    assert hours_not_once([*PROGRESS, PROGRESS[3]], HOURS) == [3]
    assert hours_not_once(PROGRESS[:-1], HOURS) == [HOURS - 1]
    assert hours_not_once([*PROGRESS, Progress(HOURS, "x", 1)], HOURS) == [HOURS]
    assert not verdict(good_rows(), progress=[*PROGRESS, PROGRESS[3]]).passed


def test_wrong_aggregates_are_named() -> None:
    right = expected_delays(SOURCE)
    assert wrong_groups(right, right.sample(frac=1, random_state=1)) == []
    for column in ("flights", "mean", "p95"):
        wrong = right.copy()
        wrong[column] = [right[column][0] + 1, *right[column][1:]]
        assert wrong_groups(right, wrong) == [f"{right['carrier'][0]}-{right['origin'][0]}"]
    assert len(wrong_groups(right, right[1:])) == 1
    assert counts(verdict(good_rows(), delays=right[1:])) == {"wrong_groups": 1}


def test_an_acknowledged_commit_that_was_lost_and_written_again_is_told() -> None:
    again = Progress(3, attempt_name(3, 2, 1, Intent.COMMIT), PROGRESS[3].rows)
    rows = good_rows().replace({"attempt": {PROGRESS[3].attempt: again.attempt}})
    found = verdict(rows, progress=[*PROGRESS[:3], again, *PROGRESS[4:]])
    assert counts(found) == {"lost_commits": 1}
    assert not found.passed


def test_nothing_seen_is_all_lost_and_nothing_expected_proves_nothing() -> None:
    empty = good_rows()[:0]
    assert counts(verdict(empty)) == {"lost": 600}
    assert not verify(SOURCE[:0], empty, expected_delays(SOURCE[:0]), [], []).passed


def test_hidden_rows_are_those_of_uncommitted_attempts() -> None:
    written = {record.attempt: record.rows for record in PROGRESS} | {attempt_name(1, 1, 9, Intent.ABORT): 52, "?": 3}
    assert uncommitted_rows(written, PROGRESS) == 55


def test_the_source_is_what_it_is_said_to_be() -> None:
    assert len(canonical(SOURCE)) == 600
    assert list(SOURCE["row"]) == list(range(600))
    assert SOURCE["time_hour"].is_monotonic_increasing
