"""Seams of an application: time, randomness, threads, sockets and processes during a run.

All changes apply to the thread of the run. Other threads of the process, such as those of pytest, are not affected.
Not replaced: `datetime.now`, which is a C function, and functions that a module has bound before the run.
"""

import importlib
import logging
import os
import random
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import ModuleType
from typing import Any, Final, NoReturn
from unittest import mock

import structlog

from odradek.simulation.environment.clock import EPOCH_MS
from odradek.simulation.environment.loop import NODE
from odradek.simulation.errors import UnsuitableProcess
from odradek.simulation.loop import ApplicationLoop

HASH_SEED: Final = "0"
SEED_VARIABLE: Final = "PYTHONHASHSEED"
RECORD_MODULES: Final = tuple(
    f"aiokafka.record.{name}" for name in ("default_records", "legacy_records", "memory_records", "util")
)
"""Modules of aiokafka that define records in Python and import them as C extensions."""
real_time = time.time
real_perf_counter = time.perf_counter

Note = Callable[[str, str], None]
"""Function that receives the source and the text of an event."""


def require_suitable_process() -> None:
    """Raise UnsuitableProcess if equal seeds could differ between two processes."""
    if os.environ.get(SEED_VARIABLE) != HASH_SEED or sys.flags.hash_randomization:
        raise UnsuitableProcess(
            f"Set {SEED_VARIABLE}={HASH_SEED} before Python starts. Sets of strings have a random order otherwise."
        )


@contextmanager
def seams(loop: ApplicationLoop, seed: int, note: Note) -> Iterator[None]:
    """Replace what code takes from outside by virtual time, random numbers of the seed, and errors."""
    own = threading.get_ident()
    rng = Random(f"application {seed}")
    state = random.getstate()

    def here(ours: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*arguments: Any, **options: Any) -> Any:
            return (ours if threading.get_ident() == own else real)(*arguments, **options)

        return chosen

    def refused(what: str, instead: str) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> NoReturn:
            loop.escape(what, instead)

        return refuse

    def wall() -> float:
        return EPOCH_MS / 1000 + loop.time()

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (time, "time", wall),
        (time, "time_ns", lambda: int(wall() * 1e9)),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
        (time, "sleep", refused("time.sleep", "await asyncio.sleep")),
        (os, "urandom", rng.randbytes),
        (random, "_urandom", rng.randbytes),
        (threading.Thread, "start", refused("a thread", "a task (asyncio.create_task)")),
        (subprocess.Popen, "__init__", refused("a child process", "a coroutine in its place")),
        (socket.socket, "connect", refused("a real socket", "asyncio.open_connection")),
        (socket.socket, "bind", refused("a real socket", "asyncio.start_server")),
        (socket, "getaddrinfo", refused("socket.getaddrinfo", "loop.getaddrinfo")),
    ]
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # An ended process leaves coroutines that never started, and clients that are not closed.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        for module, name, python in _extensions_of_aiokafka():
            stack.enter_context(mock.patch.object(module, name, python))
        stack.enter_context(_records_of_aiokafka(here(wall, real_time)))
        stack.enter_context(_brokers_of_aiokafka())
        for owner, name, ours in replaced:
            stack.enter_context(mock.patch.object(owner, name, here(ours, getattr(owner, name))))
        stack.enter_context(_logs(loop, note))
        random.seed(f"application {seed}")
        try:
            yield
        finally:
            random.setstate(state)


def _extensions_of_aiokafka() -> list[tuple[ModuleType, str, object]]:
    """Return (module, name, replacement) for each use of a C extension in aiokafka.

    The C extensions read the real clock. aiokafka has each of these classes and functions in Python, too.
    """
    try:
        importlib.import_module("aiokafka")
    except ImportError:  # the application uses another client
        return []
    in_python = {}
    for source in RECORD_MODULES:
        values = vars(sys.modules[source])
        for name, value in values.items():
            python = values.get(f"_{name}Py", values.get(f"{name}_py"))
            if python is not None and python is not value:
                in_python[id(value)] = python
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "aiokafka"]
    return [
        (module, name, in_python[id(value)])
        for module in modules
        for name, value in vars(module).items()
        if id(value) in in_python
    ]


@contextmanager
def _records_of_aiokafka(clock: Callable[[], float]) -> Iterator[None]:
    """Let aiokafka's record builder use `clock`. It binds time.time as the default of an argument at its import."""
    try:
        from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy as Builder
    except ImportError:  # the application uses another client
        yield
        return
    before = Builder.append.__defaults__
    Builder.append.__defaults__ = tuple(clock if value is real_time else value for value in before)
    try:
        yield
    finally:
        Builder.append.__defaults__ = before


@contextmanager
def _brokers_of_aiokafka() -> Iterator[None]:
    """Hash aiokafka's brokers without their rack.

    aiokafka selects a broker from a set of them. The hash of None is its address before Python 3.12.
    """
    try:
        from aiokafka.structs import BrokerMetadata
    except ImportError:
        yield
        return
    with mock.patch.object(BrokerMetadata, "__hash__", lambda broker: hash(tuple(broker)[:3])):
        yield


class _Notes(logging.Handler):
    """Handler that turns log records of the application and its client into events."""

    def __init__(self, note: Note) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        source = NODE.get().partition("#")[0]
        self._note(source, f"{record.levelname.lower()} {record.name}: {record.getMessage()}")


@contextmanager
def _logs(loop: ApplicationLoop, note: Note) -> Iterator[None]:
    """Add log events of brokers to the trace, and those of the application and warnings of brokers to the events."""

    def drop(logger: Any, level: str, event: Any) -> Any:
        loop.trace.add(loop.steps, loop.time(), "log", level, event.get("event"))
        if level in {"warning", "error", "critical"}:
            fields = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"event", "exception"})
            note(NODE.get().partition("#")[0], f"{level} {event.get('event')} {fields}"[:300])
        raise structlog.DropEvent

    root, notes = logging.getLogger(), _Notes(note)
    handlers, before = root.handlers[:], structlog.get_config()
    root.handlers[:] = [notes]
    structlog.configure(processors=[drop], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        structlog.configure(**before)
