"""A process that lives no longer than the one that started it, whatever ends that one (SIGKILL included).

The leash is a small process of its own between the two. Its standard input is a pipe from the owner: when the owner dies
or closes it, the pipe ends, and the leash ends its command (SIGTERM, then SIGKILL). This needs no privileges and no
signal tricks, and works for any command: ``python -m odradek.pipeline.cluster.leash COMMAND ...``.
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
REAP_SECONDS = 5.0


class Leashed:
    """A command on a leash. Its standard output can be read line by line; its standard error goes to ``console``.

    Args:
        command: program and arguments.
        console: file that the command's standard error (and output, when ``quiet``) is appended to.
        quiet: send the standard output to the console too.
    """

    def __init__(self, command: Sequence[str], *, console: Path, quiet: bool = False) -> None:
        options = ["--quiet"] if quiet else []
        with console.open("ab") as errors:
            self._process = subprocess.Popen(
                run_module.command("odradek.pipeline.cluster.leash", *options, *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=run_module.environment(),
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal reaches the owner alone, which stops things in order
            )
        first = self.output.readline()
        if not first.startswith("pid "):
            self.stop()
            raise RuntimeError(f"cannot start {command[0]}: {console.read_text(encoding='utf-8')[-2000:]}")
        self.pid = int(first.removeprefix("pid "))

    @property
    def output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def poll(self) -> int | None:
        """The command's exit code (negative: its signal), None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL the command itself; nothing of it runs any more when this returns."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End the command cleanly (SIGTERM, SIGKILL after a grace time) and wait for it; harmless when it has ended."""
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
    """Run the command until it ends, or until standard input does."""
    quiet = arguments[0] == "--quiet"
    command = arguments[1:] if quiet else arguments
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr if quiet else None)
    print(f"pid {child.pid}", flush=True)

    def end_with_owner() -> None:
        os.read(sys.stdin.fileno(), 1)
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=end_with_owner, daemon=True).start()
    code = child.wait()
    # A child that died by a signal is reported as 128 + signal, as shells do: this process itself was not killed.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the thread that waits on standard input would hold up an orderly exit
