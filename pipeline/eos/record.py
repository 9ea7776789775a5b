"""Record of a campaign: events of all drivers, faults that were carried out, durations of batches."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.pipeline.eos.plan import FIRST_STEP, End, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.pipeline.eos.driver_process import Event
    from odradek.pipeline.eos.plan import Run

T = TypeVar("T")
PERCENTILES: Final = 20
"""Number of quantiles: the last one of 19 limits is the 95th percentile."""


@dataclass(slots=True)
class BatchTimes:
    """Times of the steps of one batch in one run, in seconds of time.monotonic.

    `steps` has the first time of each step. `begins` is the number of attempts that the sink began. `paused` is true if
    the campaign stopped the driver in the batch. `ended_at` is None if the batch is not complete.
    """

    run: int
    batch: int
    steps: dict[str, float] = field(default_factory=dict)
    begins: int = 0
    paused: bool = False
    ended_at: float | None = None

    @property
    def written(self) -> bool:
        """Return True if the run wrote the batch, and False if the ledger had it."""
        return len(self.steps) > 1


@dataclass(slots=True)
class Record:
    """Events of a campaign. `event` is called in the threads of all drivers.

    Attributes:
        batches: Times of all batches, in order of their first event.
        faults: Number of faults that were carried out.
        ends: Number of ends of runs that were carried out.
        times: (seconds of time.monotonic, run) of each end.
        step_kills: Number of kills after each step.
        problems: Responses of the sink or the cluster that must not be.
    """

    batches: list[BatchTimes] = field(default_factory=list)
    faults: Counter[Fault] = field(default_factory=Counter)
    ends: Counter[End] = field(default_factory=Counter)
    times: list[tuple[float, Run]] = field(default_factory=list)
    step_kills: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[int, BatchTimes] = field(default_factory=dict)

    def event(self, event: Event) -> None:
        """Add an event of a driver."""
        if event.name not in {"step", "paused", "batch"}:
            return
        with self._lock:
            batch = event.details["batch"]
            times = self._open.get(event.run)
            if times is None or times.batch != batch or times.ended_at is not None:
                times = self._open[event.run] = BatchTimes(event.run, batch)
                self.batches.append(times)
            if event.name == "step":
                times.steps.setdefault(event.details["step"], event.at)
                times.begins += event.details["step"] == FIRST_STEP
            elif event.name == "paused":
                times.paused = True
            else:
                times.ended_at = event.at

    def ended(self, run: Run, at: float) -> None:
        """Count the end of a run, `at` in seconds of time.monotonic."""
        self.ends[run.end] += 1
        self.times.append((at, run))
        if run.end is End.STEP:
            assert run.end_at is not None, "a kill after a step has a pause"
            self.step_kills[run.end_at.step] += 1

    def batches_of(self, run: int) -> list[BatchTimes]:
        """Return the batches of a run."""
        with self._lock:
            return [times for times in self.batches if times.run == run]

    @property
    def repeated_attempts(self) -> int:
        """Number of batches of which the sink began a second attempt in one run."""
        return sum(times.begins > 1 for times in self.batches)

    def undisturbed(self) -> list[BatchTimes]:
        """Return the complete batches with one attempt and without a pause, and without the first one of each run."""
        known: set[int] = set()
        found = []
        for times in self.batches:
            is_disturbed = times.paused or times.begins > 1
            if times.run in known and times.ended_at is not None and times.written and not is_disturbed:
                found.append(times)
            known.add(times.run)
        return found

    def missing(self, plan: Sequence[Run]) -> list[str]:
        """Return one line for each planned fault or end that was not carried out."""
        faults = Counter(run.fault for run in plan if run.fault is not None)
        ends = Counter(run.end for run in plan)
        kills = Counter(run.end_at.step for run in plan if run.end is End.STEP and run.end_at is not None)
        found = [f"{count} of {planned} times: {end}" for end, planned, count in _lacking(ends, self.ends)]
        found += [f"{count} of {planned} times: {fault}" for fault, planned, count in _lacking(faults, self.faults)]
        found += [
            f"{count} of {planned} kills after step {step}" for step, planned, count in _lacking(kills, self.step_kills)
        ]
        return [*found, *self.problems]


def _lacking(planned: Counter[T], actual: Counter[T]) -> list[tuple[T, int, int]]:
    return [(name, count, actual[name]) for name, count in planned.items() if actual[name] < count]


def durations(batches: Sequence[BatchTimes], first: str, last: str | None) -> tuple[float, float]:
    """Return median and 95th percentile of the seconds from a step to another one, or to the end of the batch."""
    found = []
    for times in batches:
        end = times.ended_at if last is None else times.steps.get(last)
        if end is not None and first in times.steps:
            found.append(end - times.steps[first])
    if len(found) < 2:
        return (found[0], found[0]) if found else (0.0, 0.0)
    return statistics.median(found), statistics.quantiles(found, n=PERCENTILES, method="inclusive")[-1]
