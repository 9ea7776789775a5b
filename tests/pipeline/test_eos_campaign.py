"""Short exactly-once campaigns: the driver is killed after steps, and the rows are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.pipeline.eos import feeder
from odradek.pipeline.eos.campaign import Result, Settings, run_campaign
from odradek.pipeline.eos.plan import End, Mode, Pause, Run
from odradek.pipeline.eos.report import lines, passed
from odradek.pipeline.eos_campaign import steps_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
BACKLOG_ROWS = 200
"""Maximum rows of the input that a short campaign writes ahead of the output: a few batches, with an aborted row."""


def campaign(mode: Mode, plan: list[Run], out: Path, *options: str) -> tuple[Settings, Result]:
    """Run a campaign with this plan on one broker."""
    settings = Settings(mode, 1, steps_of(mode), plan, 0.0, out, print)
    cluster = DemoCluster(out / "cluster", out / "cluster.log", brokers=1, options=options)
    try:
        return settings, run_campaign(settings, cluster)
    finally:
        cluster.stop()


def check_rows_are_visible_once(out: Path, mode: Mode, plan: list[Run], *options: str) -> None:
    """Run a campaign with this plan, and check that no row was lost or duplicated."""
    settings, result = campaign(mode, plan, out, *options)
    assert result.missing == []
    assert result.judgment.exactly_once, result.judgment
    assert passed(settings, result)
    assert result.visibility.whole
    report = lines(settings, result)
    assert report[-1] == "PASSED: 0 lost, 0 duplicated, 0 split"


def test_rows_are_visible_once_after_a_kill_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "BACKLOG_ROWS", BACKLOG_ROWS)
    check_rows_are_visible_once(tmp_path, Mode.TXN, [Run(1, None, None, End.STEP, Pause(1, "COMMITTED"), 0.0)])


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "step", "options"),
    [(Mode.TXN, "COMMITTED", []), (Mode.TWO_PHASE, "ONE_COMPLETED", ["--two-phase-commit"])],
)
def test_rows_are_visible_once_after_kills_of_the_driver(
    tmp_path: Path, mode: Mode, step: str, options: list[str]
) -> None:
    plan = [
        Run(1, None, None, End.LATE, Pause(1, "BEGUN"), 0.005),
        Run(2, None, None, End.STEP, Pause(1, step), 0.0),
    ]
    check_rows_are_visible_once(tmp_path, mode, plan, *options)


@pytest.mark.full
def test_stock_sink_duplicates_rows_under_the_same_kills(tmp_path: Path) -> None:
    plan = [Run(1, None, None, End.STEP, Pause(1, "WRITTEN"), 0.0)]
    settings, result = campaign(Mode.STOCK, plan, tmp_path)
    assert result.judgment.duplicated > 0
    assert (result.judgment.lost, result.judgment.undecided) == (0, 0)
    assert not result.judgment.exactly_once
    assert passed(settings, result)
    assert "duplicates are expected" in lines(settings, result)[-1]
