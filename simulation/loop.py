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
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.errors import Escaped

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")


LIBRARY: Final = sysconfig.get_path("stdlib")
PACKAGE: Final = str(Path(__file__).parent)


def _place() -> str:
    """Return the file and line of the code outside of Python's library and this package that made the current call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        outside = not path.startswith((PACKAGE, "<"))
        if outside and (not path.startswith(LIBRARY) or "site-packages" in path):
            return f" ({os.path.relpath(path)}, line {frame.f_lineno})"
        frame = frame.f_back
    return ""


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


class ApplicationLoop(SimLoop):
    """Loop of a cluster and an application. `escaped` is the first use of something outside of the simulation."""

    task_class = NumberedTask

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.numbers = itertools.count(1)
        self.escaped: Escaped | None = None
        self.over = False
        """True after the run: the clean-up of tasks that never ended may still schedule callbacks, without effect."""
        super().__init__(*arguments, **options)

    def escape(self, what: str, instead: str) -> NoReturn:
        """Record and raise Escaped: the application uses `what`, and should use `instead`."""
        error = Escaped(f"The application uses {what}{_place()}, which the simulation cannot control; use {instead}.")
        self.escaped = self.escaped or error
        raise error

    def _check_closed(self) -> None:
        if not self.over:
            super()._check_closed()  # type: ignore[misc]

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        self.escape(f"run_in_executor({func!r})", "a coroutine, or a direct call of the function")

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl"):
            self.escape("TLS", "security_protocol=PLAINTEXT in the simulation")
        if options.get("sock") is not None:
            self.escape("a real socket", "a host and a port of the cluster")
        return await super().create_connection(*arguments, **options)

    async def create_unix_connection(self, *arguments: Any, **options: Any) -> Any:
        self.escape("a Unix socket", "an object in memory in its place")

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

    async def sock_connect(self, *arguments: Any) -> None:
        self.escape("a real socket (sock_connect)", "asyncio.open_connection")
