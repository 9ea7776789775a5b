"""Runs of the exactly-once campaign, with drivers and a relay in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.eos import runner as runner_module
from odradek.pipeline.eos.driver_process import Event
from odradek.pipeline.eos.plan import End, Pause, Run
from odradek.pipeline.eos.record import Record
from odradek.pipeline.eos.runner import LATE_REPETITIONS_MAX, Job, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pytest

    from odradek.pipeline.eos.driver import Task

DELETED_BATCH = 5
COMMIT_LOG = Run(0, None, None, End.COMMIT_LOG, None, 0.0)
LATE = Run(0, None, None, End.LATE, Pause(1, "BEGUN"), 0.0)
REPLACED = Run(0, None, None, End.REPLACED, Pause(1, "DECIDED"), 0.0)
KILLED = Run(0, None, None, End.STEP, Pause(1, "BEGUN"), 0.0)
RELAY = Access("relay:1")


class FakeDriver:
    """A driver whose runs have the batches of a table, each with the step OPENED alone, as if it was written before."""

    batches: Mapping[int, int]
    calls: list[tuple[int, str]]
    """Run, and what the runner waits for or does."""

    def __init__(self, _console: Path, _settings: Mapping[str, str], on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event

    def start(self, task: Task) -> None:
        self._run = task.run
        if task.run in self.batches:
            self._on_event(Event(task.run, "step", 0.0, {"batch": self.batches[task.run], "step": "OPENED"}))

    def wait_for(self, *names: str) -> Event:
        self.calls.append((self._run, names[0]))
        return Event(0, names[0], 0.0, {"error": "SinkInUse"})

    def await_step(self, step: str) -> None:
        self.calls.append((self._run, step))

    def proceed(self) -> None:
        self.calls.append((self._run, "proceed"))

    def kill(self) -> None:
        pass

    close = kill


class FakeRelay:
    """A relay whose late commits have no response."""

    def __init__(self, _access: Access) -> None:
        pass

    def start(self) -> Access:
        return RELAY

    def take_held_commit(self) -> None:
        return None

    def arm(self, *_: object, **__: object) -> None:
        pass

    release = stop = arm


def carried_out(
    monkeypatch: pytest.MonkeyPatch, out: Path, plan: list[Run], batches: Mapping[int, int]
) -> tuple[Runner, Record, list[str]]:
    """Carry out a plan whose time is over from the start. Return the runner, its record and its progress lines."""

    def more() -> Iterator[Run]:
        while True:
            yield KILLED

    monkeypatch.setattr(runner_module, "DriverProcess", FakeDriver)
    monkeypatch.setattr(runner_module, "Relay", FakeRelay)
    monkeypatch.setattr(runner_module, "delete_last_commit", lambda _: DELETED_BATCH)
    monkeypatch.setattr(FakeDriver, "batches", batches, raising=False)
    monkeypatch.setattr(FakeDriver, "calls", [], raising=False)
    job = Job(Access("a:1"), "in", 1, "1 second", {}, stock=False, out=out)
    record, shown = Record(), list[str]()
    runner = Runner(job, lambda *_: "", record, shown.append, threading.Event())
    runner.carry_out(plan, more(), lambda: False)
    runner.close()
    return runner, record, shown


def test_batch_is_repeated_after_the_last_planned_run_deleted_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, record, _ = carried_out(monkeypatch, tmp_path, [COMMIT_LOG], {1: DELETED_BATCH, 2: DELETED_BATCH})
    assert runner.runs == 2
    assert record.problems == []


def test_other_batch_in_place_of_the_deleted_one_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, record, _ = carried_out(monkeypatch, tmp_path, [COMMIT_LOG], {1: DELETED_BATCH, 2: DELETED_BATCH + 1})
    assert record.problems == ["batch 5 was not repeated, but batch 6"]


def test_run_without_a_batch_after_a_deleted_commit_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, record, _ = carried_out(monkeypatch, tmp_path, [COMMIT_LOG], {})
    assert record.problems == ["batch 5 was not repeated: run 2 has no batch"]


def test_run_whose_late_commit_has_no_response_is_repeated_a_limited_number_of_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, record, shown = carried_out(monkeypatch, tmp_path, [LATE], {})
    assert sum("no response" in line for line in shown) == 1 + LATE_REPETITIONS_MAX
    assert record.missing([LATE]) == [f"0 of 1 times: {End.LATE}"]


def test_fenced_driver_continues_when_its_successor_begins_a_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before that, both drivers could complete the batch that the first one has decided."""
    _, record, _ = carried_out(monkeypatch, tmp_path, [REPLACED], {})
    assert FakeDriver.calls[:4] == [(1, "paused"), (2, "BEGUN"), (1, "proceed"), (1, "refused")]
    assert record.problems == []
