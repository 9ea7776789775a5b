"""How the gap around a kill is measured and shown, on timelines written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.chart import as_text, buckets, draw
from benchmarks.failover import Acknowledgments, Timeline, java_hash

if TYPE_CHECKING:
    from pathlib import Path

STEADY = Timeline([number / 10 for number in range(-30, 40)])
BROKEN = Timeline([number / 10 for number in range(-30, 1)] + [2.5 + number / 10 for number in range(40)])


def test_the_gap_is_the_longest_after_the_kill() -> None:
    assert STEADY.gap_s == pytest.approx(0.1)
    assert BROKEN.gap_s == pytest.approx(2.5)
    assert Timeline([-5.0, -1.0, -0.9, 0.1]).gap_s == pytest.approx(1.0)


def test_a_transactional_id_is_hashed_as_java_does() -> None:
    assert [java_hash(text) for text in ("", "a", "tx-1", "bench-survivor", "polygenelubricants")] == [
        0,
        97,
        3572520,
        1641378803,
        0,
    ]


def test_the_load_goes_on_until_acknowledgments_have_come_steadily() -> None:
    acks = Acknowledgments()
    acks.times = [0.5, 1.0]
    assert not acks._steady(0.0)
    acks.times = [number / 10 for number in range(60)]
    assert acks._steady(0.0)
    acks.times = [number / 10 for number in range(20)] + [4.0]
    assert not acks._steady(0.0)


def test_both_systems_are_in_one_chart(tmp_path: Path) -> None:
    kills = {"a leader": {"one": STEADY, "other": BROKEN}}
    text = as_text(kills)
    assert "longest gap 0.10 s" in text
    assert "longest gap 2.50 s" in text
    assert sum(buckets(BROKEN, 10.0)) == len([at for at in BROKEN.acknowledged if at >= -2.0])
    draw(kills, tmp_path / "kill.png")
    assert (tmp_path / "kill.png").stat().st_size > 1000
