"""Measurement and chart of the gap in acknowledgments after a broker failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.chart import as_text, buckets, draw
from benchmarks.failover import Acknowledgments, Timeline, java_hash

if TYPE_CHECKING:
    from pathlib import Path

STEADY = Timeline([number / 10 for number in range(-30, 40)])
INTERRUPTED = Timeline([number / 10 for number in range(-30, 1)] + [2.5 + number / 10 for number in range(40)])


def test_the_gap_is_the_longest_after_the_kill() -> None:
    assert STEADY.gap_s == pytest.approx(0.1)
    assert INTERRUPTED.gap_s == pytest.approx(2.5)
    assert Timeline([-5.0, -1.0, -0.9, 0.1]).gap_s == pytest.approx(1.0)


def test_a_transactional_id_is_hashed_as_java_does() -> None:
    assert [java_hash(text) for text in ("", "a", "tx-1", "bench-survivor", "polygenelubricants")] == [
        0,
        97,
        3572520,
        1641378803,
        0,
    ]


def test_load_continues_until_acknowledgments_are_steady() -> None:
    acks = Acknowledgments()
    acks.times = [0.5, 1.0]
    assert not acks._steady(0.0)
    acks.times = [number / 10 for number in range(60)]
    assert acks._steady(0.0)
    assert not acks._steady(0.0, seconds_min=7.0)
    acks.times = [number / 10 for number in range(20)] + [4.0]
    assert not acks._steady(0.0)


def test_chart_shows_both_systems_over_the_same_time(tmp_path: Path) -> None:
    kills = {"a leader": {"odradek": STEADY, "kafka": INTERRUPTED}}
    text = as_text(kills)
    assert "longest gap 0.10 s" in text
    assert "longest gap 2.50 s" in text
    assert sum(buckets(INTERRUPTED, 10.0)) == len([second for second in INTERRUPTED.acknowledged if second >= -2.0])
    draw(kills, tmp_path / "kill.svg")
    picture = (tmp_path / "kill.svg").read_text()
    assert "2.5 s without an acknowledgment" in picture
    assert "0.1 s without an acknowledgment" in picture
    assert "prefers-color-scheme: dark" in picture
    assert picture.count("not measured") == 1, "only the shorter load"
    assert (tmp_path / "kill.png").read_bytes().startswith(b"\x89PNG")
