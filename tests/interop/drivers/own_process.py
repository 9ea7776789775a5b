"""A Python client in a process of its own, so that it can be killed: every call of a driver goes over a line, pickled.

The other end is `tests.interop.drivers.served`.
"""

from __future__ import annotations

import base64
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tests.interop.drivers.line_process import LineProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver, GroupConsumer, GroupOptions, Message, ProducerDriver, ProducerOptions


@dataclass(frozen=True)
class Handle:
    """Stands for what lives in the process. Number 0 is the driver itself."""

    number: int


class Remote:
    """What has been made there, as if it were here. Methods raise Fenced, ClientFailed."""

    def __init__(self, process: LineProcess, handle: Handle) -> None:
        self._process = process
        self.handle = handle

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            given = [each.handle if isinstance(each, Remote) else each for each in arguments]
            [[told]] = self._process.call(pickled((self.handle, method, given, named)))
            found = unpickled(told)
            return Remote(self._process, found) if isinstance(found, Handle) else found

        return call


class OwnProcess:
    """A driver of a Python client; the client runs elsewhere."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = LineProcess(sys.executable, "-m", "tests.interop.drivers.served", name)
        self._driver = cast("Driver", Remote(self._process, Handle(0)))

    def producer(self, bootstrap: str, options: ProducerOptions) -> ProducerDriver:
        return self._driver.producer(bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> GroupConsumer:
        return self._driver.member(bootstrap, topic, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        return self._driver.consume(bootstrap, topic, partitions, isolation)

    def kill(self) -> None:
        """SIGKILL: nobody is told anything."""
        self._process.kill()

    def close(self) -> None:
        self._process.close()


def pickled(content: object) -> str:
    return base64.b64encode(pickle.dumps(content)).decode()


def unpickled(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
