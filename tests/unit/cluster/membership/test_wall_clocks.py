"""Wall clocks: a node whose clock is ahead is reported once, and once more when it is correct again."""

from odradek.cluster.membership.wall_clocks import AHEAD_MS_MAX, WallClocks

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def test_clock_an_hour_ahead_and_its_correction_are_reported_once() -> None:
    clocks = WallClocks()
    reports = [
        clocks.received(2, sent_ms=NOW_MS + ahead_ms, now_ms=NOW_MS) for ahead_ms in (HOUR_MS, HOUR_MS + 5, 10, 0)
    ]
    assert reports == [HOUR_MS, None, 0, None]


def test_delayed_datagram_does_not_report_a_clock() -> None:
    assert WallClocks().received(2, sent_ms=NOW_MS - HOUR_MS, now_ms=NOW_MS) is None


def test_usual_clock_difference_is_not_reported() -> None:
    assert WallClocks().received(2, sent_ms=NOW_MS + AHEAD_MS_MAX, now_ms=NOW_MS) is None


def test_each_node_is_reported_separately() -> None:
    clocks = WallClocks()
    assert [clocks.received(node, sent_ms=NOW_MS + HOUR_MS, now_ms=NOW_MS) for node in (2, 3, 2)] == [
        HOUR_MS,
        HOUR_MS,
        None,
    ]
