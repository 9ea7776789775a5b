"""Kills of Python workers: they are repeated until the sink repeats a batch."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, cast

import pytest

from odradek.pipeline.eos.driver_process import DriverProcess, Event
from odradek.pipeline.eos.injector import kill_workers
from odradek.pipeline.eos.plan import WORKERS_BATCHES_MAX, End, Fault, Pause, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

RUN = Run(1, Fault.WORKERS, Pause(1, "BEGUN"), End.STEP, Pause(1 + WORKERS_BATCHES_MAX, "BEGUN"), 0.0)
BEGUN, WRITTEN, BATCH = (
    Event(1, "step", 0.0, {"step": "BEGUN"}),
    Event(1, "step", 0.0, {"step": "WRITTEN"}),
    Event(1, "batch", 0.0, {}),
)


class FakeDriver:
    """A driver with the workers of each search in order, of which the last ones remain, and its events in order."""

    def __init__(self, workers: Sequence[list[int]], events: Sequence[Event]) -> None:
        self._workers = list(workers)
        self.events = list(events)

    def workers(self) -> list[int]:
        return self._workers.pop(0) if len(self._workers) > 1 else self._workers[0]

    def wait_for(self, *names: str) -> Event:
        while (event := self.events.pop(0)).name not in names:
            pass
        return event

    def await_step(self, step: str) -> None:
        while self.wait_for("step").details["step"] != step:
            pass

    def proceed(self) -> None:
        pass


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids that were killed. No process is killed."""
    pids: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: pids.append(pid))
    return pids


def injected(driver: FakeDriver) -> str:
    stopped = threading.Event()
    stopped.set()  # no wait takes time
    return kill_workers(RUN, cast("DriverProcess", driver), stopped)


def test_worker_that_replaces_an_idle_one_is_killed(killed: list[int]) -> None:
    driver = FakeDriver([[], [7], [7], [7, 8]], [BEGUN])
    assert injected(driver) == "killed 2 Python workers, and the batch was repeated"
    assert killed == [7, 8]


def test_workers_are_killed_in_the_next_batch_if_no_task_failed(killed: list[int]) -> None:
    searches_without_a_new_worker = [[7]] * 50
    driver = FakeDriver([*searches_without_a_new_worker, [9]], [WRITTEN, BATCH, BEGUN, BEGUN, WRITTEN])
    assert injected(driver) == "killed 2 Python workers, and the batch was repeated"
    assert killed == [7, 9]
    assert driver.events == [WRITTEN]


def test_kills_end_before_the_last_pause_of_the_run(killed: list[int]) -> None:
    driver = FakeDriver([[7], [7], [8], [9], [10], [11], [12]], [*[BEGUN, WRITTEN, BATCH] * 3, BEGUN][1:])
    assert injected(driver) == "killed 4 Python workers, and no batch was repeated"
    assert driver.events == [BEGUN]


def test_batch_without_a_python_worker_is_an_error(killed: list[int]) -> None:
    with pytest.raises(RuntimeError, match="no Python worker ran"):
        injected(FakeDriver([[]], []))
    assert killed == []
