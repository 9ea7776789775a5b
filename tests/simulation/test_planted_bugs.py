"""Planted bugs of an application are found by few seeds, and the correct application passes."""

from __future__ import annotations

import os

import pytest

from odradek.simulation import Faults, Result, checkers, run
from tests.simulation.apps import copy

pytestmark = pytest.mark.skipif(os.environ.get("PYTHONHASHSEED") != "0", reason="needs PYTHONHASHSEED=0")
SEEDS_MAX = 10
FOUND_LATE = (copy.CommitTakenAsAborted, copy.OffsetsOutside)
"""Bugs that take longest to find. `make test-all` finds them."""
CHECKERS = [checkers.exactly_once("in", "out", origin=lambda record: (record.value or b"").lower()), checkers.finished]


def simulated(app: type[copy.Copy], seed: int) -> Result:
    return run(app, seed=seed, topics=copy.TOPICS, checkers=CHECKERS, faults=Faults(seconds=10))


@pytest.mark.parametrize("seed", range(1, 4))
def test_correct_application_passes(seed: int) -> None:
    result = simulated(copy.Copy, seed)
    assert result.passed, result.explain()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_correct_application_passes_200_seeds() -> None:
    copy.correct()


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.full) if bug in FOUND_LATE else bug for bug in copy.BUGS]
)
def test_planted_bug_is_found(bug: type[copy.Copy]) -> None:
    failed = next((result for seed in range(1, SEEDS_MAX + 1) if not (result := simulated(bug, seed)).passed), None)
    assert failed is not None, f"{SEEDS_MAX} seeds pass"
    assert "order" in failed.findings[0]
