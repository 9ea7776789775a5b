"""The expiry time: its bounds while the wall clock of this node, or of another one, is wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.runtime.expiry_time import AHEAD_OF_MEDIAN_MS_MAX, CATCH_UP_FACTOR, ExpiryTime

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class Clocks:
    """The clocks of a node, and those of the other nodes as their differences to the true time."""

    def __init__(self, *peers_ahead_ms: int) -> None:
        self.time = ExpiryTime()
        self.monotonic_ms = 77
        self.true_ms = START_MS
        self.ahead_ms = 0
        self.peers_ahead_ms = peers_ahead_ms

    def after(self, elapsed_ms: int) -> int:
        """Return the expiry time minus the true time, `elapsed_ms` later."""
        self.monotonic_ms += elapsed_ms
        self.true_ms += elapsed_ms
        peers_ms = [self.true_ms + ahead_ms for ahead_ms in self.peers_ahead_ms]
        wall_ms = self.true_ms + self.ahead_ms
        return self.time.advance(monotonic_ms=self.monotonic_ms, wall_ms=wall_ms, peers_ms=peers_ms) - self.true_ms


def test_expiry_time_equals_a_correct_wall_clock() -> None:
    clocks = Clocks(5, -300, 40)
    assert [clocks.after(elapsed_ms) for elapsed_ms in (0, 1, MINUTE_MS, DAY_MS)] == [0] * 4


def test_expiry_time_of_a_single_node_follows_a_forward_jump_with_twice_the_speed() -> None:
    clocks = Clocks()
    clocks.after(0)
    clocks.ahead_ms = 8 * DAY_MS
    assert clocks.after(0) == 0
    assert clocks.after(DAY_MS) == DAY_MS
    assert clocks.after(7 * DAY_MS) == 8 * DAY_MS
    assert clocks.after(DAY_MS) == 8 * DAY_MS


def test_expiry_time_goes_back_with_the_wall_clock() -> None:
    clocks = Clocks()
    clocks.after(0)
    clocks.ahead_ms = -DAY_MS
    assert clocks.after(MINUTE_MS) == -DAY_MS
    clocks.ahead_ms = 0
    assert clocks.after(MINUTE_MS) == -DAY_MS + MINUTE_MS


def test_expiry_time_stays_near_the_median_of_the_clocks() -> None:
    clocks = Clocks(0, 10)
    clocks.after(0)
    clocks.ahead_ms = 8 * DAY_MS
    assert [clocks.after(elapsed_ms) for elapsed_ms in (DAY_MS, 30 * DAY_MS)] == [10 + AHEAD_OF_MEDIAN_MS_MAX] * 2


def test_one_wrong_clock_of_two_others_has_no_effect() -> None:
    for wrong_ms in (8 * DAY_MS, -8 * DAY_MS):
        clocks = Clocks(0, wrong_ms)
        assert [clocks.after(elapsed_ms) for elapsed_ms in (0, DAY_MS)] == [0, 0]


def test_node_that_starts_with_a_wrong_clock_goes_on_from_its_checkpoint() -> None:
    clocks = Clocks()
    clocks.ahead_ms = 8 * DAY_MS
    clocks.time.restore(clocks.true_ms - MINUTE_MS, clocks.monotonic_ms)
    assert clocks.after(0) == -MINUTE_MS
    assert clocks.after(MINUTE_MS) == 0


def test_node_without_a_checkpoint_starts_with_the_earlier_of_wall_clock_and_median() -> None:
    clocks = Clocks(0, 0)
    clocks.ahead_ms = 8 * DAY_MS
    assert clocks.after(0) == AHEAD_OF_MEDIAN_MS_MAX


steps = st.tuples(st.integers(0, DAY_MS), st.integers(-10 * DAY_MS, 10 * DAY_MS))


@given(st.lists(steps, max_size=20))
def test_nothing_expires_before_half_of_its_time_has_passed(steps: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    clocks.after(0)
    written: list[tuple[int, int]] = []
    for elapsed_ms, ahead_ms in steps:
        clocks.ahead_ms = ahead_ms
        expiry_ms = clocks.after(elapsed_ms) + clocks.true_ms
        for monotonic_ms, wall_ms in written:
            assert expiry_ms - wall_ms <= CATCH_UP_FACTOR * (clocks.monotonic_ms - monotonic_ms)
        written.append((clocks.monotonic_ms, clocks.true_ms + ahead_ms))
