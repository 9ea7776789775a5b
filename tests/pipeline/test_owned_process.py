"""OwnedProcess: output, stop, and termination with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from odradek.local.processes import has_ended
from odradek.pipeline.cluster.owned_process import OwnedProcess

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MAX = 20.0
RUN_UNTIL_SIGNAL = (
    "import signal, sys; print('noise', file=sys.stderr, flush=True); print('up', flush=True); signal.pause()"
)
EXIT_ON_SIGTERM = (
    "import signal, sys; signal.signal(15, lambda *_: (print('bye', file=sys.stderr, flush=True), sys.exit(0)));"
    "print('up', flush=True); signal.pause()"
)
OWNER = """
import pathlib, signal, sys
from odradek.pipeline.cluster.owned_process import OwnedProcess
owned = OwnedProcess([sys.executable, "-c", {program!r}], console=pathlib.Path({console!r}))
owned.output.readline()
print(owned.pid, flush=True)
signal.pause()
"""


def wait_ended(pid: int) -> bool:
    """Return True if a process ends within SECONDS_MAX."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return has_ended(descriptor, SECONDS_MAX)
    finally:
        os.close(descriptor)


def test_standard_error_is_written_to_the_console(tmp_path: Path) -> None:
    owned = OwnedProcess([sys.executable, "-c", RUN_UNTIL_SIGNAL], console=tmp_path / "console")
    assert owned.output.readline() == "up\n"
    assert owned.poll() is None
    owned.kill()
    assert wait_ended(owned.pid)
    assert (tmp_path / "console").read_text() == "noise\n"


def test_quiet_writes_both_outputs_to_the_console(tmp_path: Path) -> None:
    owned = OwnedProcess([sys.executable, "-c", "print('output')"], console=tmp_path / "console", quiet=True)
    assert owned.wait(SECONDS_MAX) == 0
    owned.stop()
    assert (tmp_path / "console").read_text() == "output\n"


def test_stop_sends_sigterm_before_sigkill(tmp_path: Path) -> None:
    owned = OwnedProcess([sys.executable, "-c", EXIT_ON_SIGTERM], console=tmp_path / "console")
    assert owned.output.readline() == "up\n"
    owned.stop()
    assert owned.poll() == 0
    assert (tmp_path / "console").read_text() == "bye\n"


def test_command_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    program = OWNER.format(program=RUN_UNTIL_SIGNAL, console=str(tmp_path / "console"))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(pid, 0)
        owner.send_signal(signal.SIGKILL)
    assert wait_ended(pid)


def test_error_names_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot start /no/such/program"):
        OwnedProcess(["/no/such/program"], console=tmp_path / "console")
