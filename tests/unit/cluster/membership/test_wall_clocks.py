"""Whose clock is ahead is told once, and once more when it is right again."""

from odradek.cluster.membership.wall_clocks import AHEAD_MS_MAX, WallClocks

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def test_an_hour_ahead_is_told_once_and_so_is_its_end() -> None:
    clocks = WallClocks()
    told = [clocks.received(2, sent_ms=NOW_MS + ahead_ms, now_ms=NOW_MS) for ahead_ms in (HOUR_MS, HOUR_MS + 5, 10, 0)]
    assert told == [HOUR_MS, None, 0, None]


def test_what_has_been_on_its_way_for_an_hour_says_nothing_of_a_clock() -> None:
    assert WallClocks().received(2, sent_ms=NOW_MS - HOUR_MS, now_ms=NOW_MS) is None


def test_what_clocks_differ_by_anyway_is_no_news() -> None:
    assert WallClocks().received(2, sent_ms=NOW_MS + AHEAD_MS_MAX, now_ms=NOW_MS) is None


def test_each_node_is_told_of_for_itself() -> None:
    clocks = WallClocks()
    assert [clocks.received(node, sent_ms=NOW_MS + HOUR_MS, now_ms=NOW_MS) for node in (2, 3, 2)] == [
        HOUR_MS,
        HOUR_MS,
        None,
    ]
