"""Broker processes: start, wait until ready, signal, end. Nothing here is signaled but what was started from here."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from odradek import run_module

MS = 1_000
STOP_TIMEOUT_S = 30.0
READY_LINE_BYTES_MAX = 4096
LOG_TAIL_BYTES = 8192
USAGE = 2
"""The exit code when the command line asks for what cannot be."""


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

    def descriptor(self) -> int | None:
        """A pidfd, which is readable once the process has ended; None when it has already."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive():
            return descriptor
        os.close(descriptor)
        return None

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait for the end of the process. True when it is gone."""
        descriptor = self.descriptor()
        if descriptor is None:
            return True
        try:
            return has_ended(descriptor, timeout_s)
        finally:
            os.close(descriptor)


def has_ended(descriptor: int, timeout_s: float) -> bool:
    """Wait for the end of the process behind a pidfd; of any number, which select() cannot."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * MS))


class Lifeline:
    """A pipe that nobody but this process can write to: whoever reads it learns when this process has ended."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def close(self) -> None:
        os.close(self._writer)
        os.close(self.reader)


@dataclass(frozen=True)
class BrokerCommand:
    """How to start one broker.

    With ``lifeline``, the reading end of a `Lifeline`, it ends when that pipe does; without, it is in a session of its own and
    lives on by itself.
    """

    node_id: int
    config: Path
    log: Path
    settings: tuple[str, ...] = ()
    lifeline: int | None = None
    profile: Path | None = None
    """File that the broker writes a profile to when it stops."""

    def argv(self) -> list[str]:
        argv = run_module.command("odradek.broker", "--config", str(self.config))
        for setting in self.settings:
            argv += ["--set", setting]
        if self.profile is not None:
            argv += ["--profile", str(self.profile)]
        return argv if self.lifeline is None else [*argv, "--stop-with-stdin"]


class BrokerProcess:
    """One running broker. ``endpoint`` is the ``host:port`` of its ready line, empty until that has come."""

    def __init__(self, command: BrokerCommand) -> None:
        self.command = command
        self.endpoint = ""
        self._said = b""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = command.log.stat().st_size if command.log.exists() else 0
        with command.log.open("ab") as log:
            self._process = subprocess.Popen(
                command.argv(),
                stdin=subprocess.DEVNULL if command.lifeline is None else command.lifeline,
                stdout=subprocess.PIPE,
                stderr=log,
                env=run_module.environment(),
                start_new_session=True,  # Ctrl-C reaches this process alone, which stops them in order
            )
        identity = ProcessId.of(self._process.pid)
        self.identity = identity or ProcessId(self._process.pid, 0)

    @property
    def node_id(self) -> int:
        return self.command.node_id

    def fileno(self) -> int:
        """Readable when the broker has said something, or has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def is_ready(self) -> bool:
        """Read what there is. True once the broker has said that a transaction could commit; ``endpoint`` is set then.

        Raises:
            BrokerFailed: it has ended, or says something else; it is ended then.
        """
        chunk = os.read(self.fileno(), READY_LINE_BYTES_MAX)
        if not chunk:
            code = self._process.wait()
            raise BrokerFailed(self._reason(code), max(code, 1))
        self._said += chunk
        if not self._said.endswith(b"\n") and len(self._said) < READY_LINE_BYTES_MAX:
            return False
        word, _, endpoint = self._said.decode().strip().partition(" ")
        if word != "ready":
            self.kill()
            raise BrokerFailed(f"broker said {self._said!r} instead of its ready line; see {self.command.log}")
        self.endpoint = endpoint
        return True

    def _reason(self, code: int) -> str:
        """The last thing that this start of the broker wrote, which is its reason."""
        if code < 0:
            return f"broker {self.node_id} was ended by {signal.Signals(-code).name} while it started"
        last = self.last_words()
        return (
            f"broker {self.node_id}: {last}"
            if last
            else f"broker {self.node_id} ended with exit code {code}; see {self.command.log}"
        )

    def last_words(self) -> str:
        """The last line of its log since it was started; empty when there is none."""
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ask_to_stop(self) -> None:
        """SIGTERM, also to a paused one; harmless when it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop cleanly (SIGTERM), after ``timeout_s`` by SIGKILL. Returns the exit code."""
        self.ask_to_stop()
        return self.join(timeout_s)

    def join(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for its end, after ``timeout_s`` by SIGKILL. Returns the exit code."""
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
        if self._process.stdout is not None:
            self._process.stdout.close()
