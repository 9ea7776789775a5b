"""Match of decisions and markers: random sequences with removed, added and altered markers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.audit import alignment
from odradek.pipeline.audit.alignment import BAND_MAX, Expected, Fit, Found, Pair, align

if TYPE_CHECKING:
    import pytest

VIOLATIONS = {Fit.MISSING, Fit.WRONG_KIND, Fit.WRONG_EPOCH, Fit.UNEXPECTED}


def decisions(*commits: bool, epoch: int = 0) -> list[Expected]:
    return [Expected(commit, epoch, 10 * number, 10 * number + 5) for number, commit in enumerate(commits)]


def markers(expected: list[Expected]) -> list[Found]:
    """Return the markers of all decisions, each after data."""
    return [Found(each.commit, each.epoch, each.prepare_ms + 2, each.epoch) for each in expected]


def fits(pairs: list[Pair]) -> list[Fit]:
    return [pair.fit for pair in pairs]


def fewest_violations(expected: tuple[Expected, ...], found: tuple[Found, ...]) -> int:
    """Return the least number of violations of all matches, without bounds on the search."""

    @cache
    def cost(i: int, j: int) -> int:
        if i == len(expected):
            return sum(not excused(index) for index in range(j, len(found)))
        options = [cost(i + 1, j) + 1]
        if j < len(found):
            options.append(cost(i, j + 1) + (not excused(j)))
            differences = (expected[i].commit != found[j].commit) + (expected[i].epoch != found[j].epoch)
            if differences < 2:
                options.append(cost(i + 1, j + 1) + differences)
        return min(options)

    def excused(j: int) -> bool:
        repeats = j > 0 and found[j][:2] == found[j - 1][:2] and found[j].data_epoch is None
        return repeats or found[j].newer

    return cost(0, 0)


found_markers = st.builds(
    Found, st.booleans(), st.sampled_from([0, 1]), st.integers(0, 100), st.sampled_from([None, 7]), st.booleans()
)
"""Markers after no data, or after data of another epoch: none of them can be an operator's."""


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1])), max_size=12), st.lists(found_markers, max_size=12))
def test_match_has_the_fewest_violations(kinds: list[tuple[bool, int]], found: list[Found]) -> None:
    expected = [Expected(commit, epoch, 10 * at, 10 * at + 5) for at, (commit, epoch) in enumerate(kinds)]
    pairs = align(expected, found, may_lack_found=False, may_lack_expected=False)
    assert [pair.expected for pair in pairs if pair.expected is not None] == list(range(len(expected)))
    assert [pair.found for pair in pairs if pair.found is not None] == list(range(len(found)))
    assert sum(fit in VIOLATIONS for fit in fits(pairs)) == fewest_violations(tuple(expected), tuple(found))


@given(st.lists(st.booleans(), min_size=60, max_size=120), st.data())
def test_removed_marker_is_found_by_time(kinds: list[bool], data: st.DataObject) -> None:
    expected = decisions(*kinds)
    removed = data.draw(st.integers(0, len(kinds) - 1))
    found = markers(expected)
    del found[removed]
    pairs = align(expected, found, may_lack_found=False, may_lack_expected=False)
    assert [pair for pair in pairs if pair.fit is not Fit.MATCH] == [Pair(removed, None, Fit.MISSING)]


def test_repeated_marker_is_found_by_time_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes 65 steps per decision. A log with one repeated marker has tens of thousands of decisions."""
    monkeypatch.setattr(alignment, "_Table", None)
    expected = decisions(True, True, True, False, True)
    found = markers(expected)
    found.insert(1, found[0]._replace(timestamp_ms=found[0].timestamp_ms + 1, data_epoch=None))
    pairs = align(expected, found, may_lack_found=False, may_lack_expected=False)
    assert [pair for pair in pairs if pair.fit is not Fit.MATCH] == [Pair(None, 1, Fit.REPEATED)]


@given(st.lists(st.booleans(), min_size=60, max_size=120), st.integers(1, 59))
def test_missing_beginnings_are_excused(kinds: list[bool], count: int) -> None:
    expected = decisions(*kinds)
    found = markers(expected)
    without_markers = align(expected, found[count:], may_lack_found=True, may_lack_expected=False)
    assert fits(without_markers) == [Fit.REMOVED] * count + [Fit.MATCH] * (len(kinds) - count)
    without_decisions = align(expected[count:], found, may_lack_found=False, may_lack_expected=True)
    assert fits(without_decisions) == [Fit.EARLIER] * count + [Fit.MATCH] * (len(kinds) - count)


def test_clock_of_the_leader_makes_no_violation() -> None:
    expected = decisions(*[True] * 50)
    found = [marker._replace(timestamp_ms=marker.timestamp_ms - 100_000) for marker in markers(expected)]
    pairs = align(expected, found, may_lack_found=False, may_lack_expected=False)
    assert fits(pairs) == [Fit.MATCH] * 50


def test_many_missing_markers_are_counted() -> None:
    count = BAND_MAX + 10
    expected = decisions(*[True] * count)
    pairs = align(expected, markers(expected)[-5:], may_lack_found=False, may_lack_expected=False)
    assert fits(pairs) == [Fit.MISSING] * (count - 5) + [Fit.MATCH] * 5
