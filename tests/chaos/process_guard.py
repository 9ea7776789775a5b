"""A process that terminates all child processes of the supervisor when the supervisor exits.

The supervisor writes the id of each child to the guard's standard input. When that input ends, the guard sends SIGCONT
and SIGTERM to each child. A child that is stopped by SIGSTOP cannot notice the exit of the supervisor.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from odradek.local.processes import ProcessId
from tests.support.jars import ROOT

if TYPE_CHECKING:
    from types import TracebackType

GRACE_SECONDS: Final = 10.0
"""Time from SIGTERM to SIGKILL, in seconds."""


class ProcessGuard:
    """The supervisor's handle of the guard process, as a context manager."""

    def __enter__(self) -> ProcessGuard:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.process_guard"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal does not reach the guard
        )
        return self

    def watch(self, pid: int) -> None:
        identity = ProcessId.of(pid)
        if identity is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{identity.pid} {identity.started_ticks}\n".encode())
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    children = []
    for line in sys.stdin:
        pid, ticks = line.split()
        children.append(ProcessId(int(pid), int(ticks)))
    for child in children:
        child.signal(signal.SIGCONT)
        child.signal(signal.SIGTERM)
    for child in children:
        if not child.wait_ended(GRACE_SECONDS):
            child.signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
