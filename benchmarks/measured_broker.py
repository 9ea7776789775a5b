"""Run a broker as `python -m odradek.broker` does, and record the callbacks of its event loop that take long.

The environment variable BENCHMARK_CALLBACKS names a directory. Each callback over RECORD_NS of the thread's CPU time
becomes a line of the file `<pid>` there: monotonic seconds, milliseconds of CPU time, name.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import time
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

VARIABLE = "BENCHMARK_CALLBACKS"
RECORD_NS = 2_000_000
NS_PER_MS = 1_000_000
PROTOCOL_METHODS = (
    "connection_made",
    "connection_lost",
    "data_received",
    "get_buffer",
    "buffer_updated",
    "datagram_received",
    "pause_writing",
    "resume_writing",
)
"""Methods of protocols that transports call directly."""


@dataclass(frozen=True)
class Callback:
    """A callback that took long. `at_s` is the end on the monotonic clock."""

    at_s: float
    cpu_ms: float
    name: str

    def line(self) -> str:
        return f"{self.at_s:.3f}\t{self.cpu_ms:.2f}\t{self.name}\n"


def measured_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a broker whose callbacks are measured (`odradek.run_module.command`)."""
    return [sys.executable, "-P", __file__, module, *arguments]


def read_callbacks(files: Iterable[Path], since_s: float) -> list[Callback]:
    """Return the recorded callbacks that ended after a monotonic time, longest first."""
    found = []
    for file in files:
        for line in file.read_text().splitlines():
            at_s, cpu_ms, name = line.split("\t")
            if float(at_s) >= since_s:
                found.append(Callback(float(at_s), float(cpu_ms), name))
    return sorted(found, key=lambda one: one.cpu_ms, reverse=True)


class MeasuredLoop(uvloop.Loop):
    """Event loop of uvloop that measures each callback."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_soon(timed(callback), *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_soon_threadsafe(timed(callback), *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_later(delay, timed(callback), *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_at(when, timed(callback), *args, context=context)

    def create_server(self, protocol_factory: Any, *args: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        return super().create_server(measuring(protocol_factory), *args, **named)

    def create_connection(self, protocol_factory: Any, *args: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        return super().create_connection(measuring(protocol_factory), *args, **named)

    def create_datagram_endpoint(self, protocol_factory: Any, *args: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        return super().create_datagram_endpoint(measuring(protocol_factory), *args, **named)


class Timed:
    """Callable that measures another one."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[..., Any]) -> None:
        self.callback = callback

    def __call__(self, *args: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return self.callback(*args)
        finally:
            took_ns = time.thread_time_ns() - began_ns
            if took_ns >= RECORD_NS:
                record(took_ns, self.callback)


def timed(callback: Callable[..., Any]) -> Timed:
    return callback if isinstance(callback, Timed) else Timed(callback)


def record(took_ns: int, callback: Callable[..., Any]) -> None:
    line = Callback(time.monotonic(), took_ns / NS_PER_MS, name_of(callback)).line()
    with (Path(os.environ[VARIABLE]) / str(os.getpid())).open("a") as file:
        file.write(line)


def name_of(callback: Callable[..., Any]) -> str:
    """Return the name of a callback; for a step of a task, the coroutines from the task's to the one that waits."""
    task = getattr(callback, "__self__", None)
    names: list[str] = []
    coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while hasattr(coroutine, "cr_code"):
        frame = coroutine.cr_frame
        names.append(coroutine.cr_code.co_qualname + (f":{frame.f_lineno}" if frame else ""))
        coroutine = coroutine.cr_await
    function = getattr(callback, "func", callback)  # of a functools.partial
    return " > ".join(names) or getattr(function, "__qualname__", repr(function))


def measuring(factory: Callable[[], Any]) -> Callable[[], Any]:
    def make() -> Any:
        protocol = factory()
        kind = type(protocol)
        for name in PROTOCOL_METHODS:
            method = getattr(kind, name, None)
            if method is not None and not hasattr(method, "is_measured"):
                setattr(kind, name, measured(method))
        return protocol

    return make


def measured(method: Any) -> Any:
    @wraps(method)
    def call(*args: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return method(*args)
        finally:
            took_ns = time.thread_time_ns() - began_ns
            if took_ns >= RECORD_NS:
                record(took_ns, method)

    call.is_measured = True  # type: ignore[attr-defined]
    return call


if __name__ == "__main__":
    uvloop.new_event_loop = MeasuredLoop
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
