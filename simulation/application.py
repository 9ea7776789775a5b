"""The application of a run: its instances, each a process that can be crashed and is started again."""

import asyncio
import inspect
import os
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.simulation.errors import Escaped

if TYPE_CHECKING:
    from odradek.simulation.loop import ApplicationLoop

FAILURES_MAX: Final = 200
"""Unhandled exceptions of one instance after which it starts again. One more is a finding, and ends the instance."""
RESTART_SECONDS: Final = 1.0
"""Seconds of virtual time between an exit with an exception and the next start, as of a process manager."""

Main = Callable[["Sim"], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Report:
    """A value that the application reported with `Sim.record`, at `at` seconds of virtual time."""

    at: float
    instance: int
    incarnation: int
    kind: str
    value: Any


@dataclass
class Shared:
    """State that the incarnations of all instances share with the run."""

    loop: "ApplicationLoop"
    seed: int
    bootstrap: str
    note: Callable[[str, str], None]
    began: float = 0.0
    reports: list[Report] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    frozen: list[asyncio.Task[Any]] = field(default_factory=list)
    """Tasks of ended processes. They never run again; their references keep their clean-up from running."""


class Sim:
    """Interface of the application to the run: addresses of the cluster, time, and reports to the checkers."""

    def __init__(self, shared: Shared, instance: "Instance", incarnation: int) -> None:
        self._shared = shared
        self._instance = instance
        self.bootstrap = shared.bootstrap
        """Addresses of the brokers, for `bootstrap_servers`."""
        self.seed = shared.seed
        self.instance = instance.number
        """Number of this instance, from 1."""
        self.incarnation = incarnation
        """Number of this start of the instance, from 1."""
        self.durable = instance.durable
        """A mapping that survives crashes of the instance. It stands for a local database or file."""
        self.random = Random(f"instance {instance.number} start {incarnation} of seed {shared.seed}")

    def now(self) -> float:
        """Return the seconds of virtual time since the first start of the application."""
        return self._shared.loop.time() - self._shared.began

    def record(self, kind: str, value: Any) -> None:
        """Report a value to the checkers, such as ("acknowledged", b"order 7"). A crash does not lose it."""
        if self._instance.runs(self.incarnation):
            self._shared.reports.append(Report(self.now(), self.instance, self.incarnation, kind, value))
            self._shared.note(self._instance.host, f"record {kind}: {value!r}")

    async def crash_point(self, name: str) -> None:
        """Let a fault end the process here. Without such a fault, return immediately."""
        if self._instance.passes_point(name):
            return
        await self._shared.loop.create_future()  # the process has ended: nothing follows


class Instance:
    """One instance of the application and its incarnations. A process manager starts it again after each end."""

    def __init__(self, shared: Shared, main: Any, number: int) -> None:
        self.number = number
        self.host = f"application-{number}"
        self.durable: dict[Any, Any] = {}
        self.finished = False
        self.incarnation = 0
        self._shared = shared
        self._main = main
        self._name = ""
        self._task: asyncio.Task[object] | None = None
        self._failures = 0
        self._stopped = False
        self._points_left = 0
        self._point_downtime = 0.0

    def runs(self, incarnation: int) -> bool:
        """Return True if this incarnation is the current one and has not ended."""
        return bool(self._name) and self.incarnation == incarnation

    @property
    def over(self) -> bool:
        """True if the instance does not start again."""
        return self.finished or self._stopped

    def start(self) -> None:
        """Start the next incarnation, unless the instance has finished or the run ended it."""
        if self._name or self.over:
            return
        loop = self._shared.loop
        self.incarnation += 1
        self._name = f"{self.host}#{self.incarnation}"
        self._shared.note(self.host, f"starts (incarnation {self.incarnation})")
        sim = Sim(self._shared, self, self.incarnation)
        self._task = loop.spawn(self._name, _run(self._main, sim), self._name)
        loop.processes[self._name] = self
        self._task.add_done_callback(self._on_exit, context=loop.context_of("supervisor"))

    def crash(self, downtime: float) -> None:
        """End the process as `kill -9` does, and start it again after `downtime` seconds."""
        if not self._name:
            return
        self._shared.note(self.host, "crashes")
        self._end()
        self._shared.loop.call_later(downtime, self.start, context=self._shared.loop.context_of("supervisor"))

    def crash_at_point(self, points: int, downtime: float) -> None:
        """End the process at the crash point with this number, counted from now."""
        self._points_left, self._point_downtime = points, downtime

    def passes_point(self, name: str) -> bool:
        """Return False if the process ends at this crash point."""
        if self._points_left:
            self._points_left -= 1
            if not self._points_left:
                self._shared.note(self.host, f"reaches crash point {name}")
                self.crash(self._point_downtime)
                return False
        return True

    def pause(self, seconds: float) -> None:
        """Pause the process (SIGSTOP) for `seconds`."""
        if self._name:
            self._shared.loop.stall(self._name, seconds)

    def stop(self) -> None:
        """End the process permanently."""
        self._stopped = True
        if self._name:
            self._end()

    def _end(self) -> None:
        loop, name = self._shared.loop, self._name
        self._name = ""
        for task, error in loop.unread_errors_of(name):
            self._note_failure(f"task {task} failed, and nothing has read its exception", error)
        loop.resume(name)
        loop.network.detach_node(name)
        self._shared.frozen += loop.tasks_of(name)
        loop.remove_node(name)

    def _on_exit(self, task: "asyncio.Task[object]") -> None:
        if task.get_name() != self._name:
            return
        self._ended_with(asyncio.CancelledError() if task.cancelled() else task.exception())

    def on_system_exit(self, error: SystemExit) -> None:
        """End the process, as `sys.exit` does in any of its tasks."""
        self._ended_with(error)

    def on_stop(self) -> None:
        """End the process with the error of `asyncio.run`, unless its coroutine has returned meanwhile."""
        if self._task is not None and not self._task.done():
            self._ended_with(RuntimeError("Event loop stopped before Future completed."))

    def on_failure(self, error: BaseException) -> None:
        """Note an exception of a callback. The process continues, as under asyncio."""
        self._note_failure("a callback fails", error)

    def _note_failure(self, what: str, error: BaseException) -> None:
        failed = failed_assertion(error)
        self._shared.note(self.host, f"{what}: {failed or _text(error)}")
        if failed is not None:
            self._shared.findings.append(f"{self.host}: {failed}")

    def _ended_with(self, error: BaseException | None) -> None:
        if isinstance(error, Escaped):
            self.stop()
            return
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finished = True
            self._shared.note(self.host, "returns")
            self._end()
            return
        failed = failed_assertion(error)
        if failed is not None:
            self.stop()
            self._shared.note(self.host, f"fails: {failed}")
            self._shared.findings.append(f"{self.host}: {failed}")
            return
        self._failures += 1
        self._shared.note(self.host, f"fails: {_text(error)}")
        self._end()
        if self._failures > FAILURES_MAX:
            self._stopped = True
            self._shared.findings.append(f"{self.host} failed {self._failures} times, at last with {error!r}")
            return
        self._shared.loop.call_later(RESTART_SECONDS, self.start, context=self._shared.loop.context_of("supervisor"))


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def failed_assertion(error: BaseException) -> str | None:
    """Return the text of an AssertionError of the application, which is a finding. Those of its libraries are not."""
    if isinstance(error, BaseExceptionGroup):
        return next((text for each in error.exceptions if (text := failed_assertion(each))), None)
    if not isinstance(error, AssertionError):
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if f"{os.sep}site-packages{os.sep}" in frame.filename:
        return None
    return f"AssertionError: {str(error) or frame.line} ({os.path.relpath(frame.filename)}, line {frame.lineno})"


async def _run(app: Any, sim: Sim) -> object:
    main: Main = cast("Any", app)().main if inspect.isclass(app) else app
    coroutine: object = main(sim)
    if not inspect.isawaitable(coroutine):
        raise TypeError(f"the application returned {coroutine!r} and no coroutine; write it with async def")
    return await coroutine
