"""Stops of brokers that do not react to SIGTERM: each stop is bounded, and reports its outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek import LocalCluster
from odradek.__main__ import app
from odradek.local import stopping
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import mark_all_stopped, refuse_stopping
from odradek.local.processes import BrokerCommand, BrokerFailed, BrokerProcess, ProcessId
from odradek.local.stopping import Outcome, stop_all, stop_identities
from tests.support.busy_process import BUSY, IDLE, command, running
from tests.unit.odradek.local.test_directory import PLAN

if TYPE_CHECKING:
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
    assert result.stderr == "broker 1 did not stop within 0.5 s and was killed; its next start recovers its logs\n"


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
    assert "broker 1 did not stop within 0.5 s and was killed" in errors


def test_local_cluster_kills_a_busy_broker_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCommand, "argv", lambda _: command(BUSY))
    cluster = LocalCluster(directory=tmp_path, stop_timeout_s=TIMEOUT_S)
    with pytest.warns(RuntimeWarning, match="broker 1 did not stop within 0.5 s and was killed"), cluster:
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

    def interrupted(self: BrokerProcess, timeout_s: float = 0.0) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(BrokerProcess, "join", interrupted)
        stop_all(processes, GUARD_S)
    assert [process.join(GUARD_S) for process in processes] == [-signal.SIGKILL] * 2
