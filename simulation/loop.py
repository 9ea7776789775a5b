"""Event loop for applications: futures and tasks have a reproducible hash, and threads, TLS and processes are refused.

asyncio.wait and aiokafka keep futures in sets. A set iterates in the order of hashes, and the default hash is the
address of the object, which differs between processes.
"""

import asyncio
import itertools
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from odradek.simulation.environment.loop import NODE, WORLD, SimLoop
from odradek.simulation.errors import Escaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import FrameType

    ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

T = TypeVar("T")


LIBRARY: Final = sysconfig.get_path("stdlib")
PACKAGE: Final = str(Path(__file__).parent)
INSTALLED: Final = f"{os.sep}site-packages{os.sep}"
PLAINTEXT: Final = "security_protocol=PLAINTEXT in the simulation"
"""Remedy for TLS."""
STEP: Final = SimLoop._run_once.__code__
"""Code below that of the application on the stack."""


def place_of(frame: "FrameType | None") -> str:
    """Return the file and line of the application that made a call, and of the package that it called."""
    places: list[str] = []
    while frame is not None and frame.f_code is not STEP:
        path = frame.f_code.co_filename
        is_package = INSTALLED in path
        if not path.startswith((PACKAGE, "<")) and (is_package or not path.startswith(LIBRARY)):
            place = f"{os.path.relpath(path)}, line {frame.f_lineno}"
            if not is_package:
                places.insert(0, place)
                break
            places = places or [place]
        frame = frame.f_back
    return f" ({', through '.join(places)})" if places else ""


def _is_report_of_finalizer() -> bool:
    """Return True if the current call comes from a method `__del__`, such as that of an unclosed client of aiokafka.

    The garbage collector decides when it runs, and in the step of which node. This differs by version of Python.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not STEP:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class NumberedFuture(asyncio.Future[T]):
    """Future whose hash is its number in the order of creation."""

    def __init__(self, *, loop: "ApplicationLoop") -> None:
        self.number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[T]):
    """Task whose hash is its number in the order of creation."""

    def __init__(self, coro: Any, *, loop: "ApplicationLoop", **options: Any) -> None:
        self.number = next(loop.numbers)  # asyncio hashes the task while it is initialized
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


def _is_unread(task: asyncio.Task[Any]) -> bool:
    """Return True if the task has failed, and nothing has read its exception."""
    return getattr(task, "_log_traceback", False)


def _name_of(task: asyncio.Task[Any]) -> str:
    """Return the name of the coroutine of a task, or of its class if it has none. Names of tasks differ by run."""
    coro = task.get_coro()
    return str(getattr(coro, "__qualname__", type(coro).__qualname__))


class Process(Protocol):
    """A process of the application, as the loop reports to it."""

    def on_system_exit(self, error: SystemExit) -> None:
        """Receive a SystemExit of any task or callback: the process ends."""
        ...

    def on_stop(self) -> None:
        """Receive the stop of the event loop by the process, after the callbacks that it has scheduled before."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """Receive an exception of a callback, which asyncio would log."""
        ...


class ApplicationLoop(SimLoop):
    """Loop of a cluster and an application. `escaped` is the first use of something outside of the simulation."""

    future_class = NumberedFuture
    task_class = NumberedTask

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.numbers = itertools.count(1)
        self.escaped: Escaped | None = None
        self.processes: dict[str, Process] = {}
        """Running processes of the application, by the name of their node."""
        self.over = False
        """True after the run: the clean-up of tasks that never ended may still schedule callbacks, without effect."""
        self._handlers: dict[str, ExceptionHandler | None] = {}
        super().__init__(*arguments, **options)

    def escape(self, what: str, instead: str) -> NoReturn:
        """Record and raise Escaped: the application uses `what`, and should use `instead`."""
        place = place_of(sys._getframe(1))
        error = Escaped(f"The application uses {what}{place}, which the simulation cannot control; use {instead}.")
        self.escaped = self.escaped or error
        raise error

    def _check_closed(self) -> None:
        if not self.over:
            super()._check_closed()  # type: ignore[misc]

    def stop(self) -> None:
        """Stop the run. In a process of the application, end the process."""
        process = self.processes.get(NODE.get())
        if process is None:
            super().stop()
        else:
            self.call_soon(process.on_stop)

    def set_task_factory(self, factory: Any) -> None:
        """Set the factory of the run. Its tasks have a reproducible hash, and a crash ends them."""
        if NODE.get() != WORLD:
            self.escape("a task factory", "the tasks of asyncio")
        super().set_task_factory(factory)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        context: Context | None = options.get("context")
        if context is not None and NODE not in context and NODE.get() != WORLD:
            context.run(NODE.set, NODE.get())  # a new context of the application: the task belongs to its process
        return super()._make_task(loop, coro, **options)

    def _run_handle(self, handle: asyncio.Handle) -> None:
        try:
            handle._run()
        except SystemExit as error:
            process = self.processes.get(handle._context.get(NODE, WORLD))  # type: ignore[attr-defined]
            if process is None:
                raise
            process.on_system_exit(error)

    # ---- failures ---------------------------------------------------------------------------------------------------

    def set_exception_handler(self, handler: "ExceptionHandler | None") -> None:
        """Set the handler of the current process. That of the run stays."""
        if NODE.get() == WORLD:
            super().set_exception_handler(handler)
        else:
            self._handlers[NODE.get()] = handler

    def get_exception_handler(self) -> "ExceptionHandler | None":
        return self._handlers.get(NODE.get())

    def _collect_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if _is_report_of_finalizer():
            return
        node, error = self._node_of_failure(context), context.get("exception")
        process = self.processes.get(node)
        if process is None or "future" in context or "task" in context:
            # The garbage collector decides when asyncio reports a future, so this must not change the run.
            super()._collect_failure(loop, context)
            return
        if error is not None:
            process.on_failure(error)
        handler = self._handlers.get(node)
        if handler is not None:
            self.context_of(node).run(handler, self, context)

    def unread_errors_of(self, node: str) -> list[tuple[str, BaseException]]:
        """Return name and exception of the failed tasks of a node whose exception nothing has read, oldest first."""
        return [
            (_name_of(task), error)
            for task in self._tasks.get(node, ())
            if _is_unread(task) and not isinstance(error := task.exception(), SystemExit | None)
        ]

    def _may_be_pruned(self, task: asyncio.Task[Any]) -> bool:
        """Return True for done tasks, except those that `unread_errors_of` returns at the end of their process."""
        return task.done() and not (_is_unread(task) and self._creators.get(id(task)) in self.processes)

    def remove_node(self, node: str) -> None:
        super().remove_node(node)
        self._handlers.pop(node, None)
        self.processes.pop(node, None)

    # ---- what leaves the simulation ---------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        self.escape(f"run_in_executor({func!r})", "a coroutine, or a direct call of the function")

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl"):
            self.escape("TLS", PLAINTEXT)
        if options.get("sock") is not None:
            self.escape("a real socket", "a host and a port of the cluster")
        return await super().create_connection(*arguments, **options)

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl"):
            self.escape("TLS", PLAINTEXT)
        if options.get("sock") is not None:
            self.escape("a real socket", "a host and a port")
        return await super().create_server(*arguments, **options)

    async def create_datagram_endpoint(self, *arguments: Any, **options: Any) -> Any:
        if options.get("sock") is not None:
            self.escape("a real socket", "a local or a remote address")
        return await super().create_datagram_endpoint(*arguments, **options)

    async def start_tls(self, *arguments: Any, **options: Any) -> Any:
        self.escape("TLS", PLAINTEXT)

    async def create_unix_connection(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a Unix socket", "an object in memory in its place")

    async def create_unix_server(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a Unix socket", "an object in memory in its place")

    async def connect_read_pipe(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a pipe (connect_read_pipe)", "an object in memory in its place")

    async def connect_write_pipe(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a pipe (connect_write_pipe)", "an object in memory in its place")

    def add_signal_handler(self, *arguments: Any) -> None:  # type: ignore[override]
        """Do nothing: a simulated process receives no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a child process", "a coroutine in its place")

    async def subprocess_shell(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a child process", "a coroutine in its place")

    def add_reader(self, *arguments: Any) -> None:  # type: ignore[override]
        self.escape("a file descriptor (add_reader)", "asyncio's streams")

    def add_writer(self, *arguments: Any) -> None:  # type: ignore[override]
        self.escape("a file descriptor (add_writer)", "asyncio's streams")

    async def connect_accepted_socket(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (connect_accepted_socket)", "asyncio.start_server")

    async def sock_accept(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (sock_accept)", "asyncio.start_server")

    async def sock_connect(self, *arguments: Any, **options: Any) -> None:
        self.escape("a real socket (sock_connect)", "asyncio.open_connection")

    async def sock_recv(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (sock_recv)", "asyncio.open_connection")

    async def sock_recv_into(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (sock_recv_into)", "asyncio.open_connection")

    async def sock_recvfrom(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (sock_recvfrom)", "loop.create_datagram_endpoint")

    async def sock_sendall(self, *arguments: Any, **options: Any) -> None:
        self.escape("a real socket (sock_sendall)", "asyncio.open_connection")

    async def sock_sendto(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a real socket (sock_sendto)", "loop.create_datagram_endpoint")
