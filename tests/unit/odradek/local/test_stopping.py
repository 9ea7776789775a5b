"""Stops of brokers that do not react to SIGTERM: each stop is bounded, and reports its outcome."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek import LocalCluster
from odradek.broker.process import stop_progress
from odradek.broker.process.stop_progress import StopProgress
from odradek.commands.application import app
from odradek.local import processes as processes_module
from odradek.local import stopping
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import mark_all_stopped, refuse_stopping
from odradek.local.processes import (
    STOP_WITH_PROGRESS_S_MAX,
    BrokerCommand,
    BrokerFailed,
    BrokerProcess,
    ProcessId,
    await_stops,
)
from odradek.local.stopping import Outcome, killed_message, stop_all, stop_identities
from tests.support.busy_process import BUSY, IDLE, command, running
from tests.unit.odradek.local.test_directory import PLAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT_S = 0.5
GUARD_S = 30.0
WATCH = """
import sys
from pathlib import Path
from odradek.local.directory import ClusterDirectory
from odradek.local.watch import BrokerWatch
watch = BrokerWatch(ClusterDirectory(Path(sys.argv[1])), [], stop_timeout_s=0.5)
print("watching", flush=True)
sys.exit(watch.run())
"""

STOPPING = """
from odradek.broker.__main__ import _set_process_name
from itertools import count
from odradek.broker.process.stop_progress import StopProgress
progress = StopProgress(_set_process_name, count().__next__)
for _ in range(3):
    progress.step()
print("ready 127.0.0.1:1", flush=True)
input()
"""
VIRTUAL_TIMEOUT_S = 30.0


class StoppingBroker(ProcessId):
    """Broker in virtual time. `steps_at` returns its completed steps at a time in seconds."""

    now_s = 0.0
    steps_at: Callable[[float], int]
    ends_at_s: float

    def __new__(cls, steps_at: Callable[[float], int], ends_at_s: float) -> StoppingBroker:
        broker = super().__new__(cls)
        object.__setattr__(broker, "steps_at", steps_at)
        object.__setattr__(broker, "ends_at_s", ends_at_s)
        return broker

    def __init__(self, *_: object) -> None:
        super().__init__(1, 1)

    def wait_ended(self, timeout_s: float) -> bool:
        StoppingBroker.now_s += timeout_s
        return self.now_s >= self.ends_at_s

    def stop_steps(self) -> int:
        return self.steps_at(self.now_s)


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoppingBroker, "now_s", 0.0)
    monkeypatch.setattr(processes_module, "time", SimpleNamespace(monotonic=lambda: StoppingBroker.now_s))


@pytest.mark.usefixtures("virtual_time")
def test_slow_stop_that_makes_progress_is_not_killed() -> None:
    slow = StoppingBroker(lambda now_s: int(now_s / (VIRTUAL_TIMEOUT_S / 2)), VIRTUAL_TIMEOUT_S * 10)
    assert await_stops({1: slow}, VIRTUAL_TIMEOUT_S) == []
    assert StoppingBroker.now_s >= VIRTUAL_TIMEOUT_S * 10


@pytest.mark.usefixtures("virtual_time")
def test_stop_that_hangs_after_progress_is_killed_one_timeout_after_its_last_step() -> None:
    last_s = VIRTUAL_TIMEOUT_S * 3
    hanging = StoppingBroker(lambda now_s: int(min(now_s, last_s)), math.inf)
    assert await_stops({1: hanging}, VIRTUAL_TIMEOUT_S) == [1]
    assert StoppingBroker.now_s == pytest.approx(last_s + VIRTUAL_TIMEOUT_S, abs=1)


@pytest.mark.usefixtures("virtual_time")
def test_stop_without_progress_is_killed_after_the_timeout() -> None:
    assert await_stops({1: StoppingBroker(lambda _: 0, math.inf)}, VIRTUAL_TIMEOUT_S) == [1]
    assert StoppingBroker.now_s == pytest.approx(VIRTUAL_TIMEOUT_S, abs=1)


@pytest.mark.usefixtures("virtual_time")
def test_stop_that_makes_progress_forever_is_killed_after_the_maximum() -> None:
    assert await_stops({1: StoppingBroker(int, math.inf)}, VIRTUAL_TIMEOUT_S) == [1]
    assert StoppingBroker.now_s == pytest.approx(STOP_WITH_PROGRESS_S_MAX, abs=1)


def test_progress_of_a_stop_is_read_from_the_process_name() -> None:
    with running(STOPPING) as stopping_process, running(IDLE) as idle:
        assert (stopping_process.stop_steps(), idle.stop_steps()) == (3, 0)


def test_steps_beyond_the_length_of_a_process_name_show_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_progress, "STOP_STEPS_MAX", 2)
    names: list[str] = []
    progress = StopProgress(names.append, itertools.count().__next__)
    for _ in range(4):
        progress.step()
    assert names == ["stopping 1", "stopping 2", "stopping 2", "stopping 2"]


def test_process_gets_a_new_name_once_per_interval() -> None:
    names: list[str] = []
    now_s = 5.0
    progress = StopProgress(names.append, lambda: now_s)
    for _ in range(1_000):
        progress.step()
    now_s += stop_progress.NAME_INTERVAL_S
    progress.step()
    assert names == ["stopping 1", "stopping 1001"]


def test_busy_process_is_killed_after_the_timeout() -> None:
    with running(BUSY) as busy, running(IDLE) as idle:
        assert stop_identities({1: busy, 2: idle}, TIMEOUT_S) == {1: Outcome.KILLED, 2: Outcome.STOPPED}
        assert not busy.alive()
        assert not idle.alive()


def test_process_stopped_by_sigstop_ends_without_sigkill() -> None:
    with running(IDLE) as idle:
        os.kill(idle.pid, signal.SIGSTOP)
        assert stop_identities({1: idle}, GUARD_S) == {1: Outcome.STOPPED}


def test_down_reports_which_broker_it_killed(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    with running(BUSY) as busy, running(IDLE) as idle:
        directory.write_state(ClusterState(PLAN, {1: busy, 2: idle}))
        result = CliRunner().invoke(app, ["down", "--dir", str(tmp_path), "--timeout", str(TIMEOUT_S)])
    assert result.exit_code == 0
    assert result.stdout == "broker 2 stopped\nstopped 2 of 3 brokers\n"
    assert result.stderr == killed_message(1, TIMEOUT_S) + "\n"


def test_down_after_an_interrupted_down_ends_the_brokers_that_still_run(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    with running(BUSY) as busy:
        directory.write_state(ClusterState(PLAN, {1: busy}))
        mark_all_stopped(directory)  # the first command was killed after this step
        status = CliRunner().invoke(app, ["status", "--dir", str(tmp_path)])
        assert f"still stopping: broker 1 (pid {busy.pid}); end it with: odradek down" in status.stderr
        state = directory.read_state()
        assert state is not None
        with pytest.raises(BrokerFailed, match="is stopping and has not ended"):
            refuse_stopping(directory, state, [1, 2, 3])
        result = CliRunner().invoke(app, ["down", "--dir", str(tmp_path), "--timeout", str(TIMEOUT_S)])
        assert result.exit_code == 0
        assert result.stdout == "stopped 1 of 3 brokers\n"
        assert not busy.alive()
    state = directory.read_state()
    assert state is not None
    refuse_stopping(directory, state, [1, 2, 3])


def test_down_with_a_broker_that_survives_sigkill_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends a process only after its system calls. Signals without effect imitate such a process."""
    monkeypatch.setattr(ProcessId, "signal", lambda *_: None)
    monkeypatch.setattr(stopping, "KILL_TIMEOUT_S", TIMEOUT_S)
    with running(IDLE) as idle:
        ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {1: idle}))
        result = CliRunner().invoke(app, ["down", "--dir", str(tmp_path), "--timeout", str(TIMEOUT_S)])
        assert result.exit_code == 1
        assert result.stdout == "stopped 0 of 3 brokers\n"
        assert f"broker 1 (pid {idle.pid}) still runs" in result.stderr


def test_stop_signal_of_up_kills_a_busy_broker(tmp_path: Path) -> None:
    with running(BUSY) as busy:
        ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {1: busy}))
        watch = subprocess.Popen(
            [sys.executable, "-c", WATCH, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert watch.stdout is not None
        assert watch.stdout.readline() == "watching\n"
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=GUARD_S)
        assert (watch.returncode, busy.alive()) == (0, False)
    assert killed_message(1, TIMEOUT_S) in errors


def test_local_cluster_kills_a_busy_broker_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCommand, "argv", lambda _: command(BUSY))
    cluster = LocalCluster(directory=tmp_path, stop_timeout_s=TIMEOUT_S)
    with (
        pytest.warns(RuntimeWarning, match="broker 1 was killed, because its stop made no progress for 0.5 s"),
        cluster,
    ):
        assert cluster.is_running(1)
    assert not cluster.is_running(1)
    with LocalCluster(directory=tmp_path / "other", stop_timeout_s=TIMEOUT_S) as other:
        assert other.stop(1) == -signal.SIGKILL


def test_interrupted_stop_kills_the_brokers_that_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCommand, "argv", lambda _: command(BUSY))
    processes = [BrokerProcess(BrokerCommand(node, tmp_path / "unused", tmp_path / f"{node}.log")) for node in (1, 2)]
    for process in processes:
        while not process.is_ready():
            pass

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stopping, "await_stops", interrupted)
        stop_all(processes, GUARD_S)
    assert [process.join(GUARD_S) for process in processes] == [-signal.SIGKILL] * 2
