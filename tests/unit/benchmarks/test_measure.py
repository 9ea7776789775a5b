"""Workloads of `make bench` and their warm-up."""

from __future__ import annotations

from benchmarks.measure import Round, drive
from tests.support.kafka_broker import Usage


class CountingSystem:
    """System whose CPU time is the number of runs of its workload."""

    name = "counting"
    bootstrap = ""

    def __init__(self) -> None:
        self.runs = 0

    def work(self) -> dict[str, float]:
        self.runs += 1
        return {"runs": self.runs}

    def prepare(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def usage(self) -> Usage:
        return Usage(0, self.runs)


def test_only_the_run_after_the_warm_up_is_measured() -> None:
    system, result = CountingSystem(), Round()
    drive(system, result, {"row": system.work}, 4, lambda _: None)
    assert result.figures["runs"] == 5
    assert result.cpu == {"row": 1}
    assert result.warm_up_runs == 4


def test_workload_without_warm_up_runs_once() -> None:
    system, result = CountingSystem(), Round()
    drive(system, result, {"row": system.work}, 0, lambda _: None)
    assert (system.runs, result.cpu) == (1, {"row": 1})
