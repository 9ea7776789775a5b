"""No process outlives the one that started it."""

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
SERVE = "import signal, sys; print('noise', file=sys.stderr, flush=True); print('up', flush=True); signal.pause()"
POLITE = (
    "import signal, sys; signal.signal(15, lambda *_: (print('bye', file=sys.stderr, flush=True), sys.exit(0)));"
    "print('up', flush=True); signal.pause()"
)
OWNER = """
import pathlib, signal, sys
from odradek.pipeline.cluster.owned_process import OwnedProcess
leashed = OwnedProcess([sys.executable, "-c", {serve!r}], console=pathlib.Path({console!r}))
leashed.output.readline()
print(leashed.pid, flush=True)
signal.pause()
"""


def wait_gone(pid: int) -> bool:
    """A pidfd becomes readable when its process ends."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return has_ended(descriptor, SECONDS_MAX)
    finally:
        os.close(descriptor)


def test_output_is_read_and_errors_go_to_the_console(tmp_path: Path) -> None:
    leashed = OwnedProcess([sys.executable, "-c", SERVE], console=tmp_path / "console")
    assert leashed.output.readline() == "up\n"
    assert leashed.poll() is None
    leashed.kill()
    assert wait_gone(leashed.pid)
    assert (tmp_path / "console").read_text() == "noise\n"


def test_quiet_sends_both_to_the_console(tmp_path: Path) -> None:
    leashed = OwnedProcess([sys.executable, "-c", "print('said')"], console=tmp_path / "console", quiet=True)
    assert leashed.wait(SECONDS_MAX) == 0
    leashed.stop()
    assert (tmp_path / "console").read_text() == "said\n"


def test_stop_asks_first(tmp_path: Path) -> None:
    leashed = OwnedProcess([sys.executable, "-c", POLITE], console=tmp_path / "console")
    assert leashed.output.readline() == "up\n"
    leashed.stop()
    assert leashed.poll() == 0
    assert (tmp_path / "console").read_text() == "bye\n"


def test_the_command_dies_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    program = OWNER.format(serve=SERVE, console=str(tmp_path / "console"))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(pid, 0)
        owner.send_signal(signal.SIGKILL)
    assert wait_gone(pid)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot start /no/such/program"):
        OwnedProcess(["/no/such/program"], console=tmp_path / "console")
