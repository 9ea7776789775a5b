"""Ctrl-C on a command: one line, exit code 130, and no process of its terminal remains."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from odradek.interruption import INTERRUPTED, MESSAGE
from tests.support.command_line import ODRADEK

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[3]
SIMULATION: Final = ("-m", "odradek.simulation", "tests.simulation.apps.copy:correct")
GUARD_S: Final = 120.0
"""Longest wait for a start or an end on a busy machine."""
INTERVAL_S: Final = 0.05
SESSION_FIELD: Final = 3
"""Position of the session in /proc/PID/stat, after the name of the program."""


class Command:
    """A command in a session of its own, as in a terminal."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def processes(self) -> list[int]:
        """Return the processes of the session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[SESSION_FIELD]) == self.process.pid:
                found.append(int(path.parent.name))
        return found

    def check_interrupted(self) -> None:
        """Send SIGINT to all processes, as a terminal does. Check how the command ends."""
        os.killpg(self.process.pid, signal.SIGINT)
        _, errors = self.process.communicate(timeout=GUARD_S)
        assert (self.process.returncode, errors.splitlines()[-1:]) == (INTERRUPTED, [MESSAGE]), errors
        assert "Traceback" not in errors
        self.wait_for(lambda: not self.processes())  # the resource tracker of multiprocessing ends after its parent

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the processes holds. No event of the system reports a child of another process."""
        deadline = time.monotonic() + GUARD_S
        while not condition():
            assert time.monotonic() < deadline, self.processes()
            time.sleep(INTERVAL_S)


@pytest.fixture
def started() -> Callable[..., Command]:
    """Return a function that starts a command of Python, and waits for its first line of output."""

    def start(*arguments: str) -> Command:
        command = Command(sys.executable, *arguments)
        assert command.process.stdout is not None
        assert command.process.stdout.readline()
        return command

    return start


@pytest.mark.parametrize(
    "arguments",
    [("-m", "tests.sim", "--seed", "7", "--trace"), (*SIMULATION, "--seed", "3", "--trace")],
    ids=["simulator", "application"],
)
def test_interrupted_seed_ends_with_one_line(started: Callable[..., Command], arguments: tuple[str, ...]) -> None:
    started(*arguments).check_interrupted()


@pytest.mark.parametrize(
    "arguments",
    [("-m", "tests.sim", "--seeds", "0..1000", "--jobs", "2"), (*SIMULATION, "--seeds", "0..1000", "--jobs", "2")],
    ids=["simulator", "application"],
)
def test_interrupted_range_of_seeds_leaves_no_child_process(arguments: tuple[str, ...]) -> None:
    command = Command(sys.executable, *arguments)
    command.wait_for(lambda: len(command.processes()) >= 1 + 2)
    command.check_interrupted()


def test_interrupted_command_of_the_command_line_ends_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(GUARD_S)
        command = Command(str(ODRADEK), "topics", "list", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()
        with connection:
            command.check_interrupted()


def test_interrupted_start_of_the_command_line_ends_with_one_line(tmp_path: Path) -> None:
    """A module of the command line interrupts its own import, as Ctrl-C does in the first tenth of a second."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport absent\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [str(ODRADEK), "status"], env=environment, capture_output=True, text=True, check=False, timeout=GUARD_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", f"{MESSAGE}\n")
