"""Bounded history of the values of charts. This module is pure."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

INTERVAL_S: Final = 5.0
"""Seconds between two samples."""
POINTS_MAX: Final = 720
"""Samples that are kept: one hour."""
SERIES_MAX: Final = 8
"""Maximum series per chart. A value takes 8 bytes, so that 20 charts take at most 0.9 MiB."""
REST: Final = "all others"
"""Name of the sum of the series beyond the limit."""

Values = dict[str, float]
"""Value by the name of a series."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        name: Name in addresses and in the data.
        title: Title.
        unit: `count`, `rate`, `bytes_rate`, `bytes` or `seconds`.
        note: What the values are, in one sentence.
        adds_up: True if the sum of the series beyond the limit has a meaning.
    """

    name: str
    title: str
    unit: str
    note: str
    adds_up: bool = True


class History:
    """The last samples of some charts, all at the same times."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points_max = points_max
        self._times = array("d")
        self._charts: dict[str, dict[str, array[float]]] = {}

    def add(self, at_s: float, sample: Mapping[str, Values]) -> None:
        """Add a sample, by the name of the chart. A series without a value has a gap."""
        self._times.append(at_s)
        for name, values in sample.items():
            series = self._charts.setdefault(name, {})
            for label in self._admit(series, values):
                series[label] = array("d", [math.nan] * (len(self._times) - 1))
        for name, series in self._charts.items():
            for label, points in series.items():
                points.append(sample.get(name, {}).get(label, math.nan))
        if len(self._times) > self._points_max:
            self._forget_oldest()

    @staticmethod
    def _admit(series: dict[str, array[float]], values: Values) -> list[str]:
        """Return the new series of a sample that fit, the largest ones. Series without a value are evicted for them."""
        fresh = sorted((label for label in values if label not in series), key=lambda label: -values[label])
        absent = [label for label in series if label not in values]
        capacity = SERIES_MAX + 1 - len(series)
        for label in absent[: max(0, len(fresh) - capacity)]:
            del series[label]
            capacity += 1
        return fresh[: max(0, capacity)]

    def _forget_oldest(self) -> None:
        del self._times[0]
        for series in self._charts.values():
            for label in list(series):
                del series[label][0]
                if all(map(math.isnan, series[label])):
                    del series[label]

    def labels(self, chart: str) -> list[str]:
        """Return the names of the series of a chart."""
        return list(self._charts.get(chart, ()))

    def latest(self, chart: str) -> Values:
        """Return the last value of each series of a chart that has one."""
        series = self._charts.get(chart, {})
        return {label: points[-1] for label, points in series.items() if points and not math.isnan(points[-1])}

    def rows(self, chart: str, after_s: float = 0.0) -> dict[str, list[float | None]]:
        """Return the values after a time by series. None: there is no value."""
        first = bisect_right(self._times, after_s)
        return {
            label: [None if math.isnan(value) else value for value in points[first:]]
            for label, points in sorted(self._charts.get(chart, {}).items())
        }

    def times(self, after_s: float = 0.0) -> list[float]:
        """Return the times of the samples after a time, in seconds since 1970."""
        return list(self._times[bisect_right(self._times, after_s) :])


def limited(values: Values, kept: Collection[str], *, adds_up: bool) -> Values:
    """Return the SERIES_MAX largest values. If `adds_up`, add the sum of the others as REST.

    The values of `kept`, which have a history, count twice, so that similar series do not replace each other.
    """
    if len(values) <= SERIES_MAX:
        return values
    order = sorted(values, key=lambda label: (-values[label] * (1 + (label in kept)), label not in kept, label))
    shown = {label: values[label] for label in order[:SERIES_MAX]}
    if adds_up:
        shown[REST] = sum(values[label] for label in order[SERIES_MAX:])
    return shown


class Rates:
    """Rates of counters between two samples."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Values]] = {}

    def of(self, chart: str, at_s: float, counters: Values) -> Values:
        """Return the increase per second since the last call for this chart.

        A counter that is new or smaller than before has no rate: its broker has restarted, or its log was deleted.
        """
        before_s, before = self._before.get(chart, (at_s, {}))
        self._before[chart] = at_s, counters
        elapsed = at_s - before_s
        if elapsed <= 0:
            return {}
        return {
            label: (value - before[label]) / elapsed
            for label, value in counters.items()
            if label in before and value >= before[label]
        }
