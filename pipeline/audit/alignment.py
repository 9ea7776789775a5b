"""Match the decisions on a producer's transactions with its markers in one partition. This module is pure.

Both are sequences in the order of their logs. With TV1, transactions of one producer have the same epoch, so only the
order of the markers shows to which decision each belongs. The match with the fewest violations is the result. Times
select among matches with equally many violations, so that the right one is named. They never make a violation, because
the clocks of coordinator and leader may differ.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

VIOLATION: Final = 10**12
"""Cost of a violation. It exceeds the sum of all costs by time of about a million markers."""
OPERATOR: Final = VIOLATION // 2
"""Cost of a marker that an operator may have written: a wrong marker of a decision is the likelier explanation."""
TIME_COST_MAX: Final = 10**6
"""Maximum cost of the distance between the time of a marker and that of its decision, in ms."""
EXCUSED: Final = TIME_COST_MAX + 1
"""Cost of an unmatched decision or marker that is no violation. A match is preferred to it."""
BAND: Final = 32
"""Maximum distance of the alignment from its diagonal, beside the difference of both lengths.

It bounds the work per decision to 65 steps and twice that difference. Each missing or additional marker moves the
alignment by one.
"""
BAND_MAX: Final = 2_048
"""Maximum difference of both lengths for which the best match is computed. Above it, many markers are missing."""


UNREACHABLE: Final = 10**18
"""Cost of a cell of the table that no match reaches."""


class Fit(Enum):
    """Relation between a decision and a marker, or the reason why one of them has no counterpart.

    - MATCH: the marker is that of the decision.
    - WRONG_KIND, WRONG_EPOCH: the marker is in the place of the decision's marker.
    - MISSING: the decision has no marker.
    - PENDING: the decision has no marker yet, and its completion is not in the log.
    - REMOVED: the decision's marker may have been below the first offset of the log.
    - FORMER_TOPIC: the decision's marker may have been in a deleted topic with the same name.
    - UNEXPECTED: the marker has no decision.
    - REPEATED: the marker repeats the one before it.
    - BY_OPERATOR: the marker aborts an open transaction that has no decision.
    - EARLIER: the marker's decision may be before the first transition in the log.
    - NEWER: the marker's decision may be after the last transition that was read.
    """

    MATCH = "match"
    WRONG_KIND = "wrong kind"
    WRONG_EPOCH = "wrong epoch"
    MISSING = "missing"
    PENDING = "pending"
    REMOVED = "removed"
    FORMER_TOPIC = "former topic"
    UNEXPECTED = "unexpected"
    REPEATED = "repeated"
    BY_OPERATOR = "by operator"
    EARLIER = "earlier"
    NEWER = "newer"


class Expected(NamedTuple):
    """The marker that a decision requires. `complete_ms` is None if the completion is not in the log."""

    commit: bool
    epoch: int
    prepare_ms: int
    complete_ms: int | None


class Found(NamedTuple):
    """A marker. `data_epoch` is the epoch of the data between it and the marker before it, or None without data.

    `newer` is True if its decision may be after the last transition that was read.
    """

    commit: bool
    epoch: int
    timestamp_ms: int
    data_epoch: int | None
    newer: bool = False


class Pair(NamedTuple):
    """Indexes of a decision and of its marker. One of them is None if it has no counterpart."""

    expected: int | None
    found: int | None
    fit: Fit


def align(
    expected: Sequence[Expected], found: Sequence[Found], *, may_lack_found: bool, may_lack_expected: bool
) -> list[Pair]:
    """Return a match with the fewest violations, in order.

    Args:
        expected: Required markers.
        found: Markers in the partition.
        may_lack_found: The first markers may have been removed from the log.
        may_lack_expected: The first decisions may have been removed from the log.
    """
    for by_time in (True, False):  # times alone can fail, because the clocks of coordinator and leader may differ
        exact = _in_order(expected, found, by_time=by_time)
        if exact is not None:
            return exact
    if not (may_lack_found or may_lack_expected) and abs(len(expected) - len(found)) > BAND_MAX:
        return _from_the_end(expected, found, may_lack_found, may_lack_expected)
    return _Table(expected, found, may_lack_found, may_lack_expected).pairs()


def _in_order(expected: Sequence[Expected], found: Sequence[Found], *, by_time: bool) -> list[Pair] | None:
    """Return the match without a violation in which each marker belongs to the next decision; None if it fails.

    With `by_time`, the time of a marker that may be a second copy shows whether it repeats the marker before it.
    Without it, the copy belongs to the next decision if it fits. Each later marker then belongs to the decision after
    its own, and the match fails at the first one of another kind.
    """
    pairs: list[Pair] = []
    next_expected = 0
    for index, marker in enumerate(found):
        is_next = next_expected < len(expected) and _fit(expected[next_expected], marker) is Fit.MATCH
        if is_next and not (by_time and _repeats_by_time(expected, next_expected, found, index)):
            pairs.append(Pair(next_expected, index, Fit.MATCH))
            next_expected += 1
        elif _repeats(found, index):
            pairs.append(Pair(None, index, Fit.REPEATED))
        else:
            return None
    for index in range(next_expected, len(expected)):
        if expected[index].complete_ms is not None:
            return None
        pairs.append(Pair(index, None, Fit.PENDING))
    return pairs


def _from_the_end(
    expected: Sequence[Expected], found: Sequence[Found], may_lack_found: bool, may_lack_expected: bool
) -> list[Pair]:
    """Match from the end until a marker does not fit. The decisions and markers before it have no counterpart."""
    pairs: list[Pair] = []
    i, j = len(expected), len(found)
    while i and j and _fit(expected[i - 1], found[j - 1]) is Fit.MATCH:
        i, j = i - 1, j - 1
        pairs.append(Pair(i, j, Fit.MATCH))
    pairs += [Pair(None, index, _extra(found, index, may_lack_expected)[0]) for index in reversed(range(j))]
    pairs += [Pair(index, None, _unmatched(expected[index], may_lack_found)[0]) for index in reversed(range(i))]
    return pairs[::-1]


class _Table:
    """Costs of the best matches of all beginnings of both sequences, near the diagonal that ends at their ends."""

    def __init__(
        self, expected: Sequence[Expected], found: Sequence[Found], may_lack_found: bool, may_lack_expected: bool
    ) -> None:
        self._expected = expected
        self._found = found
        self._lacks_found = may_lack_found
        self._lacks_expected = may_lack_expected
        difference = abs(len(expected) - len(found))
        self._band = BAND + (0 if may_lack_found or may_lack_expected else difference)

    def pairs(self) -> list[Pair]:
        rows = self._fits()
        i, j = len(self._expected), len(self._found)
        pairs: list[Pair] = []
        while i or j:
            if i == 0:
                fit = _extra(self._found, j - 1, self._lacks_expected)[0]
            elif j == 0:
                fit = _unmatched(self._expected[i - 1], self._lacks_found)[0]
            else:
                first, fits = rows[i]
                fit = _FITS[fits[j - first]]
            takes_expected = fit in _TAKES_EXPECTED
            takes_found = fit not in _ONLY_EXPECTED
            pairs.append(Pair(i - 1 if takes_expected else None, j - 1 if takes_found else None, fit))
            i, j = i - takes_expected, j - takes_found
        return pairs[::-1]

    def _fits(self) -> list[tuple[int, bytearray]]:
        """Return the first column of each row, and the last step of the best match by column."""
        n, m = len(self._expected), len(self._found)
        above = {0: 0}
        cost = 0
        for j in range(1, m + 1):
            cost += _extra(self._found, j - 1, self._lacks_expected)[1]
            above[j] = cost
        extras = [_extra(self._found, j, may_lack_expected=False) for j in range(m)]
        rows = [(0, bytearray())]
        for i in range(1, n + 1):
            # The first column is reachable outside of the band, too.
            row = {0: above[0] + _unmatched(self._expected[i - 1], self._lacks_found)[1]}
            middle = m - (n - i)
            first = max(1, middle - self._band)
            rows.append((first, self._row(i, first, min(m, middle + self._band), above, row, extras)))
            above = row
        return rows

    def _row(
        self, i: int, first: int, last: int, above: dict[int, int], row: dict[int, int], extras: list[tuple[Fit, int]]
    ) -> bytearray:
        """Add the costs of the columns from `first` to `last` to `row`, and return their last steps."""
        expected = self._expected[i - 1]
        missing, missing_cost = _unmatched(expected, may_lack_found=False)
        missing_step = _STEP[missing]
        steps = bytearray()
        for j in range(first, last + 1):
            best, step = above.get(j, UNREACHABLE) + missing_cost, missing_step
            found = self._found[j - 1]
            both = _fit(expected, found)
            if both is not None and j - 1 in above:
                cost = above[j - 1] + _distance_ms(expected, found) + (0 if both is Fit.MATCH else VIOLATION)
                if cost < best:
                    best, step = cost, _STEP[both]
            fit, extra_cost = extras[j - 1]
            cost = row.get(j - 1, UNREACHABLE) + extra_cost
            if cost < best:
                best, step = cost, _STEP[fit]
            row[j] = best
            steps.append(step)
        return steps


_FITS: Final = tuple(Fit)
_STEP: Final = {fit: index for index, fit in enumerate(_FITS)}
_ONLY_EXPECTED: Final = frozenset({Fit.MISSING, Fit.PENDING, Fit.REMOVED})
_TAKES_EXPECTED: Final = frozenset({*_ONLY_EXPECTED, Fit.MATCH, Fit.WRONG_KIND, Fit.WRONG_EPOCH})


def _fit(expected: Expected, found: Found) -> Fit | None:
    """Return the relation of a decision and a marker; None if kind and epoch differ."""
    if expected.epoch == found.epoch:
        return Fit.MATCH if expected.commit == found.commit else Fit.WRONG_KIND
    return Fit.WRONG_EPOCH if expected.commit == found.commit else None


def _repeats(found: Sequence[Found], index: int) -> bool:
    """Return True if the marker may be a second copy: a coordinator sends markers again after a failure."""
    marker, before = found[index], found[index - 1]
    return index > 0 and marker[:2] == before[:2] and marker.data_epoch is None


def _repeats_by_time(expected: Sequence[Expected], next_expected: int, found: Sequence[Found], index: int) -> bool:
    """Return True if the marker may be a second copy, and its time is closer to the last decision than to the next."""
    if next_expected == 0 or not _repeats(found, index):
        return False
    last, following = (_distance_ms(expected[each], found[index]) for each in (next_expected - 1, next_expected))
    return last < following


def _extra(found: Sequence[Found], index: int, may_lack_expected: bool) -> tuple[Fit, int]:
    """Return the reason and the cost of a marker without a decision."""
    if may_lack_expected:
        return Fit.EARLIER, EXCUSED
    if _repeats(found, index):
        return Fit.REPEATED, EXCUSED
    marker = found[index]
    if marker.newer:
        return Fit.NEWER, EXCUSED
    if not marker.commit and marker.data_epoch == marker.epoch:
        return Fit.BY_OPERATOR, OPERATOR
    return Fit.UNEXPECTED, VIOLATION


def _unmatched(expected: Expected, may_lack_found: bool) -> tuple[Fit, int]:
    """Return the reason and the cost of a decision without a marker."""
    if expected.complete_ms is None:
        return Fit.PENDING, EXCUSED
    if may_lack_found:
        return Fit.REMOVED, EXCUSED
    return Fit.MISSING, VIOLATION


def _distance_ms(expected: Expected, found: Found) -> int:
    """Return the time between a marker and its decision, at most TIME_COST_MAX."""
    latest = expected.complete_ms if expected.complete_ms is not None else found.timestamp_ms
    distance = max(expected.prepare_ms - found.timestamp_ms, found.timestamp_ms - latest, 0)
    return min(distance, TIME_COST_MAX)
