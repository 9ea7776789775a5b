"""Broker processes: start, wait until ready, signal, end. Nothing here is signalled but what was started from here."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
READY_LINE_BYTES_MAX = 4096
LOG_TAIL_BYTES = 8192


class BrokerFailed(RuntimeError):
    """A broker could not be started; the message is the broker's own reason, `exit_code` its own or 1."""

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class BrokerDied(RuntimeError):
    """A broker that was needed is not running."""


@dataclass(frozen=True)
class ProcessId:
    """A process id with its start time (clock ticks since boot), so that a reused id is never taken for the broker."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Read the identity of a running process; None when there is none, or only its zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait for the end of the process, through its pidfd. True when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            readable, _, _ = select.select([descriptor], [], [], timeout_s)
            return bool(readable)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class BrokerCommand:
    """How to start one broker.

    ``detached`` puts it into a session of its own; otherwise it ends when this process ends, whatever ends it: the broker
    watches its standard input, a pipe that only this process holds open.
    """

    config: Path
    log: Path
    detached: bool
    settings: tuple[str, ...] = ()

    def argv(self) -> list[str]:
        argv = [sys.executable, "-P", "-m", "broker", "--config", str(self.config)]
        for setting in self.settings:
            argv += ["--set", setting]
        return argv if self.detached else [*argv, "--stop-with-stdin"]


class BrokerProcess:
    """One running broker. ``endpoint`` is the ``host:port`` of its ready line."""

    def __init__(self, command: BrokerCommand) -> None:
        self.command = command
        self.endpoint = ""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = command.log.stat().st_size if command.log.exists() else 0
        with command.log.open("ab") as log:
            self._process = subprocess.Popen(
                command.argv(),
                stdin=subprocess.DEVNULL if command.detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=command.detached,
            )
        identity = ProcessId.of(self._process.pid)
        self.identity = identity or ProcessId(self._process.pid, 0)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Return ``host:port`` once the broker says that a transaction could commit.

        Raises:
            BrokerFailed: it ended, or was silent for ``timeout_s``; it is ended then.
        """
        assert self._process.stdout is not None
        line, deadline = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n") and len(line) < READY_LINE_BYTES_MAX:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                self.kill()
                raise BrokerFailed(f"broker was not ready within {timeout_s:.0f} s; see {self.command.log}")
            chunk = os.read(self._process.stdout.fileno(), READY_LINE_BYTES_MAX)
            if not chunk:
                code = self._process.wait()
                raise BrokerFailed(self._reason(code), max(code, 1))
            line += chunk
        word, _, endpoint = line.decode().strip().partition(" ")
        if word != "ready":
            self.kill()
            raise BrokerFailed(f"broker said {line!r} instead of its ready line; see {self.command.log}")
        self.endpoint = endpoint
        return endpoint

    def _reason(self, code: int) -> str:
        """The last thing that this start of the broker wrote, which is its reason."""
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"broker ended with exit code {code}; see {self.command.log}"

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop cleanly (SIGTERM), after ``timeout_s`` by SIGKILL. Returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._close_pipes()
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def release(self) -> None:
        """Let a detached broker live on by itself."""
        self._close_pipes()
        self._process.returncode = 0  # it is not ours to reap any more

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
