"""One process of the Spark driver: start, events, kill."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek import run_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.pipeline.eos.driver import Task

EVENT_SECONDS_MAX: Final = 150.0
"""Maximum seconds until an awaited event: a start of Spark, or a batch during an outage of a broker."""
WORKER_DAEMON: Final = "pyspark.daemon"
"""Module of the process that forks Python workers."""
LOG_TAIL_CHARACTERS: Final = 2_000


class DriverFailed(RuntimeError):
    """The driver ended, refused a batch or stopped responding, and no planned fault was the cause."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the driver's output.

    Attributes:
        run: Number of the run. 0 before the driver has a task.
        name: Kind of the event. The campaign adds `exit` at the end of the process.
        at: Time of the event, in seconds of time.monotonic, which all processes of a machine share.
        details: Other fields.
    """

    run: int
    name: str
    at: float
    details: Mapping[str, Any]


class DriverProcess:
    """A driver process in a session of its own. It starts Spark immediately, and waits for its task.

    Args:
        console: File for the output of Spark and the driver's standard error.
        settings: Spark properties.
        on_event: Receives each event in a thread of this object.
    """

    def __init__(self, console: Path, settings: Mapping[str, str], on_event: Callable[[Event], None]) -> None:
        self.run = 0
        self._console = console
        self._on_event = on_event
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        command = run_module.command("odradek.pipeline.eos.driver", str(console), json.dumps(dict(settings)))
        with console.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                env=run_module.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # The JVM is in the same process group, so that one signal kills both.
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._read, name="driver events", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fields = json.loads(line)
            self._put(Event(self.run, fields.pop("event"), fields.pop("at"), fields))
        self._put(Event(self.run, "exit", 0.0, {"code": self._process.wait()}))

    def _put(self, event: Event) -> None:
        self._on_event(event)
        self._events.put(event)

    def start(self, task: Task) -> None:
        """Wait until Spark is ready, and send the task."""
        self.wait_for("ready")
        self.run = task.run
        self._write(task.encode())

    def proceed(self) -> None:
        """End a pause."""
        self._write("\n")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def wait_for(self, *names: str) -> Event:
        """Return the next event with one of the names, and drop those before it.

        Raise DriverFailed if the driver refuses a batch, fails or ends before that, or after `EVENT_SECONDS_MAX`.
        """
        while True:
            try:
                event = self._events.get(timeout=EVENT_SECONDS_MAX)
            except queue.Empty:
                raise DriverFailed(f"no {' or '.join(names)} within {EVENT_SECONDS_MAX:.0f} s{self._tail()}") from None
            if event.name in names:
                return event
            if event.name in {"failed", "refused", "exit"}:
                details = ", ".join(f"{name} {value}" for name, value in event.details.items())
                raise DriverFailed(f"run {self.run}: {event.name} instead of {' or '.join(names)}: {details}")

    def await_step(self, step: str) -> None:
        """Return when a batch reaches the step, and drop the events before that. Raise DriverFailed as `wait_for`."""
        while self.wait_for("step").details["step"] != step:
            pass

    def _tail(self) -> str:
        text = self._console.read_text(encoding="utf-8", errors="replace")
        return f"; the end of {self._console}: {text[-LOG_TAIL_CHARACTERS:]}"

    def workers(self) -> list[int]:
        """Return the process ids of the Python workers of Spark's tasks."""
        parents = _parents()
        daemons = [pid for pid in _descendants(self._process.pid, parents) if WORKER_DAEMON in _command_line(pid)]
        return [pid for pid, parent in parents.items() if parent in daemons]

    def kill(self) -> None:
        """Send SIGKILL to the driver's Python process and its JVM. Python workers end with the JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the driver, and wait for its end."""
        self.kill()
        self._process.wait()
        self._thread.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _parents() -> dict[int, int]:
    """Return the parent of each process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return parents


def _descendants(pid: int, parents: Mapping[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family[1:]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ")
    except OSError:
        return ""
