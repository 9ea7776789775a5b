"""Run a command that terminates when its owner terminates, even if the owner is killed by SIGKILL.

A small watcher process runs between the owner and the command. Its standard input is a pipe from the owner. The pipe
ends when the owner terminates or closes it. The watcher then sends SIGTERM to the command, and SIGKILL after
`GRACE_SECONDS`. This needs no privileges and works for any command:
``python -m odradek.pipeline.cluster.owned_process COMMAND ...``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

from odradek import run_module

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GRACE_SECONDS = 20.0
"""Maximum seconds between SIGTERM and SIGKILL. A broker under load needs several seconds for a clean shutdown."""
REAP_SECONDS = 5.0
"""Additional seconds that `OwnedProcess.stop` waits for the watcher, which has to reap a command that it killed."""


class OwnedProcess:
    """A command and its watcher process. The command terminates when the calling process terminates.

    Args:
        command: Program and arguments.
        console: File to which the command's standard error is appended. With `quiet`, standard output is appended, too.
        quiet: Send the standard output to `console`. Without it, the caller reads the standard output from `output`.

    Raises:
        RuntimeError: The command cannot be started. The message contains the end of `console`.
    """

    def __init__(self, command: Sequence[str], *, console: Path, quiet: bool = False) -> None:
        options = ["--quiet"] if quiet else []
        with console.open("ab") as errors:
            self._process = subprocess.Popen(
                run_module.command("odradek.pipeline.cluster.owned_process", *options, *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=run_module.environment(),
                text=True,
                # In its own session, the command does not receive the SIGINT of Ctrl-C. Only the owner receives it,
                # and stops its processes in order.
                start_new_session=True,
            )
        first = self.output.readline()
        if not first.startswith("pid "):
            self.stop()
            raise RuntimeError(f"cannot start {command[0]}: {console.read_text(encoding='utf-8')[-2000:]}")
        self.pid = int(first.removeprefix("pid "))

    @property
    def output(self) -> IO[str]:
        """Standard output of the command, after the watcher's own first line."""
        assert self._process.stdout is not None
        return self._process.stdout

    def poll(self) -> int | None:
        """Return the command's exit code, or None while it runs. The code is 128 + signal if a signal ended it."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end of the command. Return its exit code. Raise subprocess.TimeoutExpired after `seconds`."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL to the command, and return when the command and its watcher have ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Send SIGTERM to the command, SIGKILL after `GRACE_SECONDS`, and wait for its end.

        Do nothing if the command has ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_SECONDS + REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()


def main(arguments: Sequence[str]) -> int:
    """Run the command of `arguments` until it ends, or until standard input ends. Return its exit code."""
    quiet = arguments[0] == "--quiet"
    command = arguments[1:] if quiet else arguments
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr if quiet else None)
    print(f"pid {child.pid}", flush=True)

    def terminate_with_owner() -> None:
        os.read(sys.stdin.fileno(), 1)
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=terminate_with_owner, daemon=True).start()
    code = child.wait()
    # If a signal ended the command, report 128 + signal, as shells do: no signal ended the watcher itself.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # An orderly interpreter exit would wait for the thread that reads standard input.
    os._exit(code)
