"""Broker processes: start them, wait until they are ready, send signals, and wait for their end.

Signals are sent only to processes that were started by Odradek: a `ProcessId` detects that a process id was reused.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from odradek import run_module
from odradek.broker_interface import STOP_PROGRESS_NAME
from odradek.private_files import make_private_directory, open_private

if TYPE_CHECKING:
    from collections.abc import Mapping

MS = 1_000
STOP_TIMEOUT_S = 30.0
"""Seconds without progress of a stop before SIGKILL. The stop starts with SIGTERM.

A broker under load needs several seconds for a controlled shutdown.
"""
STOP_WITH_PROGRESS_S_MAX = 600.0
"""Maximum seconds between SIGTERM and SIGKILL for a broker whose stop makes progress.

10,000 changed logs on a disk that needs 50 ms per sync take about 500 s.
"""
PROGRESS_INTERVAL_S = 0.2
"""Seconds between two reads of the progress of stopping brokers."""
KILL_TIMEOUT_S = 10.0
"""Maximum seconds between SIGKILL and the end of a process.

The kernel ends a process only when its system calls have returned. A write to a disk that does not respond may wait
longer.
"""
READY_LINE_BYTES_MAX = 4096
"""Maximum bytes of the line `ready host:port` of a broker."""
LOG_TAIL_BYTES = 8192
"""Bytes at the end of a log file in which the last lines are searched."""
FREE_BYTES_MIN = 65_536
"""Free bytes below which a disk is full for the start of a broker: it writes checkpoints, indexes and its log."""
USAGE = 2
"""Exit code of an invalid command line."""


class BrokerFailed(RuntimeError):
    """A broker did not start. The message has the reason that the broker logged.

    `exit_code` is the exit code of the broker, or 1 if it has not exited.
    """

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class BrokerNotRunning(RuntimeError):
    """An operation on a broker that is not running."""


@dataclass(frozen=True)
class ProcessId:
    """A process id with the start time of the process in clock ticks since boot, which detects a reused process id."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of a running process, or None if it does not exist or is a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        """Return True if this process exists and is no zombie."""
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Send a signal, if the process exists and this user may send it a signal."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def descriptor(self) -> int | None:
        """Return a pidfd, which is readable when the process has ended, or None if it has ended.

        The caller closes it.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive():
            return descriptor
        os.close(descriptor)
        return None

    def stop_steps(self) -> int:
        """Return the number of completed steps of the stop of this broker; 0 if it shows none."""
        try:
            name = Path(f"/proc/{self.pid}/comm").read_text().strip()
        except OSError:
            return 0
        steps = name.removeprefix(STOP_PROGRESS_NAME)
        return int(steps) if steps != name and steps.isdecimal() else 0

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait for the end of the process. Return False if it still exists after `timeout_s` seconds."""
        descriptor = self.descriptor()
        if descriptor is None:
            return True
        try:
            return has_ended(descriptor, timeout_s)
        finally:
            os.close(descriptor)


def has_ended(descriptor: int, timeout_s: float) -> bool:
    """Wait for the end of the process of a pidfd. Return False if it still exists after `timeout_s` seconds.

    poll() accepts any descriptor, select() only those below 1,024.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * MS))


def is_full(directory: Path) -> bool:
    """Return True if the file system of a directory has less than FREE_BYTES_MIN bytes for this user."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize < FREE_BYTES_MIN


class StopWait:
    """Wait for the end of one stopping broker. Its progress extends the time-out, up to STOP_WITH_PROGRESS_S_MAX."""

    def __init__(self, identity: ProcessId, timeout_s: float) -> None:
        now = time.monotonic()
        self._identity = identity
        self._timeout_s = timeout_s
        self._deadline = now + timeout_s
        self._last_deadline = now + max(timeout_s, STOP_WITH_PROGRESS_S_MAX)
        self._steps = 0

    def has_ended(self) -> bool:
        """Wait at most PROGRESS_INTERVAL_S for the end of the process. Return True if it has ended."""
        remaining = self._deadline - time.monotonic()
        return self._identity.wait_ended(max(0.0, min(PROGRESS_INTERVAL_S, remaining)))

    def has_expired(self) -> bool:
        """Extend the time-out if the broker has completed steps since the last call. Return True if it has expired."""
        steps = self._identity.stop_steps()
        if steps > self._steps:
            self._steps = steps
            self._deadline = min(time.monotonic() + self._timeout_s, self._last_deadline)
        return time.monotonic() >= self._deadline


def await_stops(identities: Mapping[int, ProcessId], timeout_s: float) -> list[int]:
    """Wait for the end of stopping brokers. Return the node ids of those that must be killed.

    These are the brokers whose stop makes no progress for `timeout_s` seconds, or takes longer than
    STOP_WITH_PROGRESS_S_MAX.
    """
    waits = {node_id: StopWait(identity, timeout_s) for node_id, identity in identities.items()}
    late = []
    while waits:
        for node_id, wait in list(waits.items()):
            if wait.has_ended():
                del waits[node_id]
            elif wait.has_expired():
                del waits[node_id]
                late.append(node_id)
    return late


def still_runs(node_id: int, identity: ProcessId) -> str:
    """Return the message for a broker that exists after SIGKILL."""
    return (
        f"broker {node_id} (pid {identity.pid}) still runs {KILL_TIMEOUT_S:g} s after SIGKILL; check the user "
        "of the process, and /proc for a system call that does not return"
    )


_lifelines: WeakSet[Lifeline] = WeakSet()


class Lifeline:
    """A pipe with this process as its only writer. Its readers see the end of the pipe when this process terminates.

    A child by `os.fork`, as `multiprocessing` creates, closes its copy of the writing end: otherwise a child that
    outlives this process would keep the brokers alive.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._owner = os.getpid()
        _lifelines.add(self)

    def close(self) -> None:
        """Close both ends. In a forked child, do nothing: its copies are closed since the fork."""
        if os.getpid() == self._owner:
            _lifelines.discard(self)
            self._close()

    def _close(self) -> None:
        os.close(self._writer)
        os.close(self.reader)


def _close_in_child() -> None:
    for lifeline in list(_lifelines):
        lifeline._close()
    _lifelines.clear()


os.register_at_fork(after_in_child=_close_in_child)


@dataclass(frozen=True)
class BrokerCommand:
    """Command line of one broker.

    Attributes:
        node_id: Node id.
        config: Properties file.
        log: File to which standard error is appended, and which the broker rotates.
        settings: Properties as `name=value`, which override the file.
        lifeline: Reading end of a `Lifeline`: the broker stops when the pipe ends. None: the broker runs until it is
            stopped.
        profile: File for a profile, which the broker writes when it stops.
        test_hooks: Descriptor of a socket for fault injection, which the broker inherits. None: no fault injection.
    """

    node_id: int
    config: Path
    log: Path
    settings: tuple[str, ...] = ()
    lifeline: int | None = None
    profile: Path | None = None
    test_hooks: int | None = None

    def argv(self) -> list[str]:
        argv = run_module.command("odradek.broker", "--config", str(self.config), "--log-file", str(self.log))
        for setting in self.settings:
            argv += ["--set", setting]
        if self.profile is not None:
            argv += ["--profile", str(self.profile)]
        if self.test_hooks is not None:
            argv += ["--test-hooks", str(self.test_hooks)]
        return argv if self.lifeline is None else [*argv, "--stop-with-stdin"]


class BrokerProcess:
    """One broker process, a child of this process. `endpoint` is its `host:port`, empty until the broker is ready."""

    def __init__(self, command: BrokerCommand) -> None:
        self.command = command
        self.endpoint = ""
        self._output = b""
        make_private_directory(command.log.parent)
        self._log_start = command.log.stat().st_size if command.log.exists() else 0
        with open_private(command.log, "a") as log:
            self._process = subprocess.Popen(
                command.argv(),
                stdin=subprocess.DEVNULL if command.lifeline is None else command.lifeline,
                stdout=subprocess.PIPE,
                stderr=log,
                env=run_module.environment(),
                pass_fds=() if command.test_hooks is None else (command.test_hooks,),
                # In its own session, the broker does not receive the SIGINT of Ctrl-C. Only this process receives it,
                # and stops the brokers.
                start_new_session=True,
            )
        identity = ProcessId.of(self._process.pid)
        self.identity = identity or ProcessId(self._process.pid, 0)

    @property
    def node_id(self) -> int:
        return self.command.node_id

    def fileno(self) -> int:
        """Return the descriptor of standard output. It is readable when the broker is ready or has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def is_ready(self) -> bool:
        """Read available output. Return True, and set `endpoint`, if the broker printed its ready line.

        The broker prints the line `ready host:port` when a transaction can commit.

        Raises:
            BrokerFailed: The broker has ended, or printed another line; in that case it is killed.
        """
        chunk = os.read(self.fileno(), READY_LINE_BYTES_MAX)
        if not chunk:
            code = self._process.wait()
            raise BrokerFailed(self._reason(code), max(code, 1))
        self._output += chunk
        if not self._output.endswith(b"\n") and len(self._output) < READY_LINE_BYTES_MAX:
            return False
        word, _, endpoint = self._output.decode().strip().partition(" ")
        if word != "ready":
            self.kill()
            raise BrokerFailed(
                f"broker {self.node_id} printed {self._output!r} instead of its ready line; see {self.command.log}"
            )
        self.endpoint = endpoint
        return True

    def _reason(self, code: int) -> str:
        """Return why the broker ended during its start.

        The reason is the signal, the faults of its configuration with a line for each, the last line of its log, or
        the exit code.
        """
        if code < 0:
            return f"broker {self.node_id} was ended by {signal.Signals(-code).name} during its start; start it again"
        lines = self._log_lines() if code == USAGE else [self.last_log_line()]
        if any(lines):
            return "\n".join(f"broker {self.node_id}: {line}" for line in lines if line)
        if is_full(self.command.log.parent):
            return (
                f"broker {self.node_id}: the disk of {self.command.log.parent} is full; free space, and start it again"
            )
        return f"broker {self.node_id} ended with exit code {code}; see {self.command.log}"

    def last_log_line(self, containing: str = "") -> str:
        """Return the last line with `containing` that this process wrote to the end of its log, or "" without one."""
        return next((line for line in reversed(self._log_lines()) if containing in line), "")

    def _log_lines(self) -> list[str]:
        """Return the lines that this process wrote to the end of its log."""
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            begin = self._log_start if self._log_start <= size else 0  # the process has rotated the file
            log.seek(max(begin, size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal. Do nothing if the process has ended."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT in case that the broker is paused. Do nothing if it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM, and SIGKILL after `timeout_s` seconds without progress. Return the exit code, -9 after SIGKILL.

        Raise BrokerFailed as `kill` does. If the wait is interrupted, kill the broker.
        """
        self.terminate()
        try:
            await_stops({self.node_id: self.identity}, timeout_s)
            return self.join(0.0)
        except KeyboardInterrupt:
            self.kill()
            raise

    def join(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the end of the broker, and send SIGKILL after `timeout_s` seconds. Return the exit code.

        Raise BrokerFailed as `kill` does.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()
        self._close_pipes()
        return code

    def kill(self) -> int:
        """Send SIGKILL, and wait for the end of the broker. Return the exit code.

        Raise BrokerFailed if the process still exists after KILL_TIMEOUT_S seconds.
        """
        self._process.kill()
        try:
            code = self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise BrokerFailed(still_runs(self.node_id, self.identity)) from error
        self._close_pipes()
        return code

    def release(self) -> None:
        """Leave the broker running, and do not wait for its end any more."""
        self._close_pipes()
        self._process.returncode = 0  # subprocess would warn at exit that the child is still running

    def _close_pipes(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
