"""Conclusion of the exactly-once campaign for each mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.pipeline.eos.campaign import Result, Settings
from odradek.pipeline.eos.judgment import judge
from odradek.pipeline.eos.plan import Mode
from odradek.pipeline.eos.record import Record
from odradek.pipeline.eos.report import lines, passed
from odradek.pipeline.eos.visibility import Row, Visibility
from odradek.pipeline.eos_campaign import steps_of

SOURCE = [b"0", b"1"]
ROWS = [Row(0, 0, b"0", 0, 1), Row(0, 1, b"1", 0, 1)]
DUPLICATE = Row(0, 2, b"1", 0, 1)
FOREIGN = Row(0, 2, b"aborted", 0, 1)


def concluded(
    mode: Mode, rows: list[Row], sampled: list[Row] | None = None, *, is_partial: bool = False
) -> tuple[bool, str]:
    """Return whether a campaign with these rows passed, and the last line of its report."""
    visibility = Visibility()
    visibility.read(rows if sampled is None else sampled)
    settings = Settings(mode, 1, steps_of(mode), [], 0.0, Path(), print, is_partial)
    result = Result(Record(), judge(SOURCE, rows, visibility), visibility, 1, 1, 0, [])
    return passed(settings, result), lines(settings, result)[-1]


@pytest.mark.parametrize("mode", [Mode.TXN, Mode.TWO_PHASE, Mode.KAFKA])
def test_campaign_of_the_sink_passes_only_without_duplicates(mode: Mode) -> None:
    assert concluded(mode, ROWS) == (True, "PASSED: 0 lost, 0 duplicated, 0 split")
    assert concluded(mode, [*ROWS, DUPLICATE]) == (False, "FAILED: 0 lost, 1 duplicated, 0 split")


@pytest.mark.parametrize(("mode", "sink"), [(Mode.TXN, ""), (Mode.STOCK, "Spark's own sink, ")])
def test_campaign_with_a_part_of_the_plan_is_partial(mode: Mode, sink: str) -> None:
    is_passed, line = concluded(mode, ROWS, is_partial=True)
    assert is_passed
    assert line.startswith(f"PARTIAL, 0 planned runs: {sink}0 lost")
    assert concluded(mode, ROWS[:1], is_partial=True)[1].startswith(f"FAILED: {sink}1 lost")


def test_campaign_of_the_stock_sink_passes_with_duplicates_and_does_not_name_split_batches() -> None:
    line = "RAN: Spark's own sink, 0 lost, 1 duplicated: duplicates are expected"
    assert concluded(Mode.STOCK, [*ROWS, DUPLICATE]) == (True, line)


@pytest.mark.parametrize("rows", [ROWS[:1], [*ROWS, FOREIGN]])
def test_campaign_of_the_stock_sink_fails_if_rows_are_lost_or_foreign(rows: list[Row]) -> None:
    is_passed, line = concluded(Mode.STOCK, rows)
    assert not is_passed
    assert line.startswith("FAILED")


def test_campaign_of_the_stock_sink_fails_if_rows_vanish() -> None:
    assert not concluded(Mode.STOCK, ROWS, [*ROWS, DUPLICATE])[0]
