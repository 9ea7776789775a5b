"""Reduction of a failing seed: fewer faults, shorter faults, fewer records and less time, while it still fails."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.simulation.setup import WHOLE, Reduction, Setup

if TYPE_CHECKING:
    from odradek.simulation.result import Result

RUNS_MAX: Final = 40
"""Runs of one reduction. A run takes about as long as the failing one, which is a second or less for most setups."""
DURATION_MIN: Final = 1 / 16
LITERAL: Final = re.compile(r"b?'[^']*'|b?\"[^\"]*\"|\d+(?:\.\d+)?")

Runner = Callable[[Reduction], "Result"]
Progress = Callable[["Shrinking", bool], None]
"""Function that is called after a run of a reduction, with True if the run failed, too, and is smaller."""


def no_progress(shrinking: "Shrinking", smaller: bool) -> None:
    """Ignore the progress of a reduction."""


def kinds(result: "Result") -> set[str]:
    """Return the kinds of the findings: their first lines without numbers and quoted values."""
    return {LITERAL.sub("_", finding.partition("\n")[0]) for finding in result.findings}


class Shrinking:
    """Search for the smallest reduction of a seed with a finding of the same kind, in a bounded number of runs."""

    def __init__(
        self,
        setup: Setup,
        failed: "Result",
        runner: Runner,
        *,
        runs_max: int = RUNS_MAX,
        progress: Progress = no_progress,
    ) -> None:
        self.reduction = WHOLE
        self.result = failed
        self.runs = 0
        self._setup = setup
        self._seed = failed.seed
        self._kinds = kinds(failed)
        self._runner = runner
        self._runs_max = runs_max
        self._progress = progress
        self._passes_without_faults = False

    def shrink(self) -> None:
        """Set `reduction` and `result` to the smallest failing run that was found."""
        self._remove_faults()
        self._shorten_faults()
        self._remove_records()
        self._end_earlier()

    def _run(self, reduction: Reduction) -> "Result | None":
        if self.runs >= self._runs_max:
            return None
        self.runs += 1
        return self._runner(reduction)

    def _fails(self, reduction: Reduction) -> bool:
        """Adopt the reduction if it has a finding of the same kind."""
        result = self._run(reduction)
        if result is None:
            return False
        fails = bool(kinds(result) & self._kinds)
        if fails:
            self.reduction, self.result = reduction, result
        self._progress(self, fails)
        return fails

    def _fails_by_its_faults(self, reduction: Reduction) -> bool:
        """Adopt the reduction if it fails, and passes without faults: too few records may be a failure of their own."""
        if self._passes_without_faults:
            control = self._run(replace(reduction, faults=()))
            if control is None or not control.passed:
                return False
        return self._fails(reduction)

    def _remove_faults(self) -> None:
        kept = tuple(range(1, len(self._setup.faults_of(self._seed)) + 1))
        if not kept or self._fails(replace(WHOLE, faults=())):
            return
        self._passes_without_faults = True
        size = max(1, len(kept) // 2)
        while size and len(kept) > 1:
            position = 0
            while position < len(kept):
                fewer = kept[:position] + kept[position + size :]
                if fewer and self._fails(replace(WHOLE, faults=fewer)):
                    kept = fewer
                else:
                    position += size
            size //= 2

    def _shorten_faults(self) -> None:
        if self.reduction.faults == () or not self.result.faults:
            return
        while self.reduction.duration > DURATION_MIN:
            if not self._fails(replace(self.reduction, duration=self.reduction.duration / 2)):
                return

    def _remove_records(self) -> None:
        most = max((len(topic.records) for topic in self._setup.topics.values()), default=0)
        _bisect(1, most, lambda records: self._fails_by_its_faults(replace(self.reduction, records=records)))

    def _end_earlier(self) -> None:
        until = self._setup.until
        if isinstance(until, int | float) and self._passes_without_faults:
            _bisect(1, int(until), lambda end: self._fails_by_its_faults(replace(self.reduction, until=float(end))))


def _bisect(low: int, high: int, fails: Callable[[int], bool]) -> None:
    """Search the smallest number below `high` that fails, as if all larger ones failed, too."""
    while low < high:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle + 1
