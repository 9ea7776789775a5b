"""Seams of an application: time, randomness, threads, sockets and processes during a run.

All changes apply to the thread of the run. Other threads of the process, such as those of pytest, are not affected.
Not replaced: functions that a default argument, a container or an object has bound before the run, and C extensions.
"""

import _thread
import asyncio
import importlib
import logging
import multiprocessing.process
import os
import random
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NoReturn
from unittest import mock

import structlog

from odradek.simulation.environment.clock import EPOCH_MS
from odradek.simulation.environment.links import HOST_SUFFIX
from odradek.simulation.environment.loop import NODE
from odradek.simulation.errors import UnsuitableProcess
from odradek.simulation.loop import ApplicationLoop
from odradek.simulation.wall_clock import Choose, time_functions, virtual_datetime

HASH_SEED: Final = "0"
SEED_VARIABLE: Final = "PYTHONHASHSEED"
CONFLUENT: Final = "confluent_kafka"
NODE_OF_IDS: Final = 0x020000000001
"""Hardware address in ids of uuid.uuid1."""
NOT_OF_THE_APPLICATION: Final = sys.stdlib_module_names | {"odradek"}
INCARNATIONS_MAX: Final = 10_000
"""Maximum incarnations per instance in process ids. Incarnation 3 of instance 2 has the process id 20,003."""
LOG_CHARACTERS_MAX: Final = 300
"""Characters of a log record of structlog in an event."""
RECORD_MODULES: Final = tuple(
    f"aiokafka.record.{name}" for name in ("default_records", "legacy_records", "memory_records", "util")
)
"""Modules of aiokafka that define records in Python and import them as C extensions."""
CHILD_PROCESSES: Final = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "execv", "execve")
"""Functions of `os` that start a process, or replace this one."""
SIGNALS: Final = ((os, "kill"), (os, "killpg"), (signal, "raise_signal"), (signal, "pthread_kill"))
"""Functions that send a signal to a process, which can be this one."""
real_time = time.time
real_perf_counter = time.perf_counter
real_seed = random.Random.seed
real_configure = structlog.configure

Replacement = tuple[Any, str, Callable[..., Any]]
"""The owner of a function, its name, and the function in its place."""
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
    state = random.getstate()

    def here(ours: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*arguments: Any, **options: Any) -> Any:
            return (ours if threading.get_ident() == own else real)(*arguments, **options)

        return chosen

    def wall() -> float:
        return EPOCH_MS / 1000 + loop.time()

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # An ended process leaves coroutines that never started, and clients that are not closed.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        for module, name, python in _extensions_of_aiokafka():
            stack.enter_context(mock.patch.object(module, name, python))
        stack.enter_context(_records_of_aiokafka(here(wall, real_time)))
        stack.enter_context(_brokers_of_aiokafka())
        changed = {}
        replacements = (*_sources(loop, seed, wall), *_own_process(loop), *_escapes(loop))
        for owner, name, ours in (*replacements, (structlog, "configure", _ignore)):
            real = getattr(owner, name)
            changed[id(real)] = (real, here(ours, real))
            stack.enter_context(mock.patch.object(owner, name, changed[id(real)][1]))
        for module, name, ours in _names_of_the_application(changed):
            stack.enter_context(mock.patch.object(module, name, ours))
        stack.enter_context(virtual_datetime(wall, here))
        ids: dict[str, Any] = {"_generate_time_safe": None, "_last_timestamp": None, "_node": NODE_OF_IDS}
        stack.enter_context(mock.patch.multiple(uuid, **ids))
        importing = here(partial(_refuse_confluent, loop), lambda *_: None)
        finder = SimpleNamespace(find_spec=importing)
        stack.enter_context(mock.patch.object(sys, "meta_path", [finder, *sys.meta_path]))
        stack.enter_context(_logs(loop, note, here))
        random.seed(f"application {seed}")
        try:
            yield
        finally:
            random.setstate(state)


def _sources(loop: ApplicationLoop, seed: int, wall: Callable[[], float]) -> list[Replacement]:
    """Return the replacements of time and randomness."""
    rng = Random(f"application {seed}")

    def seed_of_run(generator: random.Random, value: Any = None, version: int = 2) -> None:
        real_seed(generator, rng.getrandbits(64) if value is None else value, version)

    return [
        *((time, name, function) for name, function in time_functions(wall, loop.time).items()),
        (os, "urandom", rng.randbytes),
        (os, "getrandom", lambda size, _flags=0: rng.randbytes(size)),
        (ssl, "RAND_bytes", rng.randbytes),
        (random, "_urandom", rng.randbytes),
        (random.Random, "seed", seed_of_run),
        (random, "seed", partial(seed_of_run, _global_generator())),
    ]


def _own_process(loop: ApplicationLoop) -> list[Replacement]:
    """Return the replacements of what differs between processes of the application: tasks, process id and host name."""
    real_tasks, real_id, real_name = asyncio.all_tasks, os.getpid, socket.gethostname

    def all_tasks(other: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
        own = other is None or other is loop
        return set(loop.tasks_of(NODE.get())) if own else real_tasks(other)

    def process_id() -> int:
        host, _, incarnation = NODE.get().rpartition(HOST_SUFFIX)
        if NODE.get() not in loop.processes:
            return real_id()
        return int(host.rpartition("-")[2]) * INCARNATIONS_MAX + int(incarnation)

    def host_name() -> str:
        return _source() if NODE.get() in loop.processes else real_name()

    return [
        *((module, "all_tasks", all_tasks) for module in (asyncio, asyncio.tasks)),
        (os, "getpid", process_id),
        (socket, "gethostname", host_name),
    ]


def _escapes(loop: ApplicationLoop) -> list[Replacement]:
    """Return the replacements of what leaves the simulation: functions that raise Escaped."""

    def refused(what: str, instead: str) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> NoReturn:
            loop.escape(what, instead)

        return refuse

    process = refused("a child process", "a coroutine in its place")
    thread = refused("a thread", "a task (asyncio.create_task)")
    connection = refused("a real socket", "asyncio.open_connection, or aiokafka as the client")
    names = refused("names of real hosts", "loop.getaddrinfo")
    return [
        (time, "sleep", refused("time.sleep", "await asyncio.sleep")),
        (threading.Thread, "start", thread),
        (_thread, "start_new_thread", thread),
        (subprocess.Popen, "__init__", process),
        *((os, name, process) for name in CHILD_PROCESSES),
        *((os, name, refused(f"os.{name}", "sys.exit")) for name in ("_exit", "abort")),
        *((owner, name, refused(f"a signal ({name})", "sys.exit")) for owner, name in SIGNALS),
        (multiprocessing.process.BaseProcess, "start", process),
        *((socket.socket, name, connection) for name in ("connect", "connect_ex", "sendto", "sendmsg")),
        (socket.socket, "bind", refused("a real socket", "asyncio.start_server")),
        *((socket, name, names) for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")),
        *((selector, "select", connection) for selector in (selectors.SelectSelector, selectors.DefaultSelector)),
        *(
            (owner, name, refused(f"{CONFLUENT}.{client}", "aiokafka"))
            for owner, name, client in _clients_of_confluent()
        ),
    ]


def _global_generator() -> Random:
    """Return the generator of the functions of the module `random`."""
    found = random.seed.__self__  # type: ignore[attr-defined]
    assert isinstance(found, Random)
    return found


def _clients_of_confluent() -> Iterator[tuple[Any, str, str]]:
    """Yield (owner, name, client) for what makes a client of confluent-kafka: its class, and `__init__` of subclasses.

    The clients have threads and sockets of their own. An `__init__` in C cannot be replaced.
    """
    for place, client in ((CONFLUENT, "Producer"), (CONFLUENT, "Consumer"), (f"{CONFLUENT}.admin", "AdminClient")):
        module = sys.modules.get(place)
        if hasattr(module, client):
            yield module, client, client
            for subclass in _subclasses(getattr(module, client)):
                yield subclass, "__init__", client


def _subclasses(base: type[Any]) -> Iterator[type[Any]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _refuse_confluent(loop: ApplicationLoop, name: str, path: object = None, target: object = None) -> None:
    """Find no module. Raise Escaped for confluent-kafka."""
    if name == CONFLUENT:
        loop.escape(CONFLUENT, "aiokafka")


def _names_of_the_application(
    changed: dict[int, tuple[Any, Callable[..., Any]]],
) -> list[tuple[ModuleType, str, Callable[..., Any]]]:
    """Return (module, name, replacement) for each changed function that a module has bound by `from ... import`."""
    return [
        (module, name, changed[id(value)][1])
        for key, module in list(sys.modules.items())
        if key.partition(".")[0] not in NOT_OF_THE_APPLICATION and isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if id(value) in changed
    ]


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


@contextmanager
def _logs(loop: ApplicationLoop, note: Note, here: Choose) -> Iterator[None]:
    """Add log events of brokers to the trace, and those of the application and warnings of brokers to the events.

    The application may configure `logging` and structlog in its process. The levels of `logging` have their effect.
    """

    def event_of(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO:
            note(_source(), f"{record.levelname.lower()} {record.name}: {record.getMessage()}")

    def drop(logger: Any, level: str, event: Any) -> Any:
        loop.trace.add(loop.steps, loop.time(), "log", level, event.get("event"))
        if level in {"warning", "error", "critical"} or (level == "info" and NODE.get() in loop.processes):
            fields = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"event", "exception"})
            note(_source(), f"{level} {event.get('event')} {fields}".rstrip()[:LOG_CHARACTERS_MAX])
        raise structlog.DropEvent

    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()  # so that logging.basicConfig has an effect
    root.setLevel(logging.WARNING)  # as in a new process
    real_configure(processors=[drop], cache_logger_on_first_use=False)
    try:
        with mock.patch.object(logging.Logger, "callHandlers", here(event_of, logging.Logger.callHandlers)):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        real_configure(**before)


def _source() -> str:
    """Return the host of the code that runs, as the source of an event."""
    return NODE.get().partition("#")[0]


def _ignore(*arguments: Any, **options: Any) -> None:
    """Do nothing."""
