"""A Python client in a separate process, which can be killed. Each call of the driver is one pickled line.

The other end is `tests.interop.drivers.driver_server`.
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
    """Reference to an object in the process. Number 0 is the driver."""

    number: int


class Remote:
    """Proxy of an object in the process. Its methods raise Fenced and ClientFailed."""

    def __init__(self, process: LineProcess, handle: Handle) -> None:
        self._process = process
        self.handle = handle

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            values = [argument.handle if isinstance(argument, Remote) else argument for argument in arguments]
            [[reply]] = self._process.call(pickled((self.handle, method, values, named)))
            result = unpickled(reply)
            return Remote(self._process, result) if isinstance(result, Handle) else result

        return call


class DriverProcess:
    """Driver of a Python client that runs in a separate process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = LineProcess(sys.executable, "-m", "tests.interop.drivers.driver_server", name)
        self._driver = cast("Driver", Remote(self._process, Handle(0)))

    def producer(self, bootstrap: str, options: ProducerOptions) -> ProducerDriver:
        return self._driver.producer(bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> GroupConsumer:
        return self._driver.member(bootstrap, topic, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        return self._driver.consume(bootstrap, topic, partitions, isolation)

    def kill(self) -> None:
        """Send SIGKILL to the process. The client sends no LeaveGroup or EndTxn."""
        self._process.kill()

    def close(self) -> None:
        self._process.close()


def pickled(content: object) -> str:
    return base64.b64encode(pickle.dumps(content)).decode()


def unpickled(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
