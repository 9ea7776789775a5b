from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from odradek.testing.plan import FaultPlan, Step, carry_out

BEGIN_AND_END = {"pause": "resume", "kill": "start", "cut": "heal", "slow": "heal", "inject": "remove_injected"}


class Recorded:
    """In-memory cluster that records the steps."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.steps.append((name, *arguments))


@pytest.mark.parametrize("brokers", [1, 3])
def test_equal_seeds_give_equal_plans_and_the_text_is_the_plan(brokers: int) -> None:
    plan = FaultPlan.generate(7, brokers)
    assert plan.steps
    assert plan == FaultPlan.generate(7, brokers) == FaultPlan.parse(str(plan))
    assert plan != FaultPlan.generate(8, brokers)


@pytest.mark.parametrize("seed", range(20))
def test_each_fault_ends_before_the_next_one_begins(seed: int) -> None:
    steps = FaultPlan.generate(seed, 3, duration_s=20).steps
    times = [step.at_ms for step in steps]
    assert times == sorted(times)
    assert times[-1] <= 20_000
    for first, last in zip(steps[::2], steps[1::2], strict=True):
        assert last.method == BEGIN_AND_END[first.method]
        assert last.arguments in {(), first.arguments}


def test_all_kinds_of_faults_occur() -> None:
    methods = {step.method for seed in range(10) for step in FaultPlan.generate(seed, 3).steps}
    assert methods == {*BEGIN_AND_END, *BEGIN_AND_END.values()}


def test_plan_for_one_broker_needs_no_other_broker() -> None:
    methods = {step.method for seed in range(10) for step in FaultPlan.generate(seed, 1).steps}
    assert methods == {"pause", "resume", "inject", "remove_injected"}


def test_steps_are_carried_out_in_their_order_until_the_end() -> None:
    cluster, end = Recorded(), Event()
    carry_out(FaultPlan((Step(0, "kill", (1,)), Step(1, "start", (1,)))), cluster, end)
    assert cluster.steps == [("kill", 1), ("start", 1)]
    end.set()
    carry_out(FaultPlan((Step(0, "heal"),)), cluster, end)
    assert len(cluster.steps) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kill 1", "step 'kill 1': expected a line such as '250 ms  kill"),
        ("10 ms  kill 1", "expected a line such as"),
        ("10 ms  kill [1", "expected a line such as"),
        ("10 ms  close []", "close is unknown; use one of pause, resume, kill"),
    ],
)
def test_text_that_is_no_plan_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FaultPlan.parse(f"  5 ms  heal []\n\n{line}")


@pytest.mark.parametrize("duration_s", [0, -1.0, float("nan"), float("inf")])
def test_duration_that_is_not_above_0_is_refused(duration_s: float) -> None:
    with pytest.raises(ValueError, match=f"duration_s={duration_s!r}: use a number of seconds above 0"):
        FaultPlan.generate(7, 3, duration_s)
