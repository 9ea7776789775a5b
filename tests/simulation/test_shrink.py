"""Reduction of a failing seed with results that a test has made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.simulation import Fault, Result, Topic
from odradek.simulation.faults import CRASH
from odradek.simulation.setup import WHOLE, Reduction, Setup
from odradek.simulation.shrink import Shrinking, kinds

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = [Fault(CRASH, at=float(number), seconds=2.0) for number in range(8)]
SETUP = Setup(
    app=None, faults=FAULTS, topics={"in": Topic(records=[(None, b"%d" % number) for number in range(50)])}, until=60.0
)


def result(*findings: str, faults: int = 1) -> Result:
    return Result(7, list(findings), FAULTS[:faults], [], "digest", 1.0, 0.1, None)


def shrunk(fails: Callable[[Reduction], str], runs_max: int = 100, setup: Setup = SETUP) -> Shrinking:
    """Reduce a failure. `fails` returns the finding of a run, or an empty text."""

    def runner(reduction: Reduction) -> Result:
        finding = fails(reduction)
        return result(*[finding] if finding else [])

    shrinking = Shrinking(setup, runner(WHOLE), runner, runs_max=runs_max)
    shrinking.shrink()
    return shrinking


def kept(reduction: Reduction) -> set[int]:
    return set(range(1, 9) if reduction.faults is None else reduction.faults)


def test_reduction_keeps_the_necessary_faults_records_and_seconds() -> None:
    def fails(reduction: Reduction) -> str:
        faults = {3, 6} <= kept(reduction) and reduction.duration >= 0.25
        enough = (reduction.records or 50) >= 4 and (reduction.until or 60) >= 9
        return "input 7 is lost" if faults and enough else ""

    assert shrunk(fails).reduction == Reduction(faults=(3, 6), duration=0.25, records=4, until=9.0)


def test_progress_is_reported_after_each_run_with_the_smallest_failure_so_far() -> None:
    seen: list[tuple[int, bool]] = []

    def runner(reduction: Reduction) -> Result:
        return result("input 7 is lost") if 3 in kept(reduction) else result()

    Shrinking(
        SETUP,
        result("input 7 is lost"),
        runner,
        progress=lambda shrinking, smaller: seen.append((shrinking.runs, smaller)),
    ).shrink()
    assert [run for run, _ in seen] == sorted({run for run, _ in seen})
    assert seen[0] == (1, False)
    assert any(smaller for _, smaller in seen)


def test_failure_without_any_fault_needs_none() -> None:
    assert shrunk(lambda _: "input 7 is lost").reduction == Reduction(faults=(), records=1)


def test_too_few_records_are_no_smaller_failure_if_they_fail_without_faults() -> None:
    def fails(reduction: Reduction) -> str:
        too_few = (reduction.records or 50) < 20 or (reduction.until or 60) < 30
        return "total 5 is wrong" if too_few or 3 in kept(reduction) else ""

    assert shrunk(fails).reduction == Reduction(faults=(3,), duration=1 / 16, records=20, until=30.0)


def test_failure_of_another_kind_is_not_adopted() -> None:
    def fails(reduction: Reduction) -> str:
        return "input 7 is lost" if kept(reduction) == set(range(1, 9)) else "the application is not done"

    assert shrunk(fails).reduction.faults is None


@pytest.mark.parametrize("runs_max", [0, 1, 5])
def test_number_of_runs_is_bounded(runs_max: int) -> None:
    count = 0

    def fails(reduction: Reduction) -> str:
        nonlocal count
        count += 1
        return "input 7 is lost" if 3 in kept(reduction) else ""

    assert shrunk(fails, runs_max).runs == runs_max == count - 1


def test_kind_of_a_finding_has_no_numbers_and_no_quoted_values() -> None:
    assert kinds(result("input b'7' of in is 2 times in out")) == kinds(result("input b'12' of in is 3 times in out"))
    assert kinds(result("input b'7' of in is not in out")) != kinds(result("input b'7' of in is 2 times in out"))


def test_options_of_a_reduction_name_what_it_keeps() -> None:
    assert WHOLE.options() == []
    options = Reduction(faults=(2, 5), duration=0.5, records=3, until=9.0).options()
    assert options == ["--faults", "2,5", "--duration", "0.5", "--records", "3", "--until", "9"]
    assert Reduction(faults=()).options() == ["--faults", "none"]
