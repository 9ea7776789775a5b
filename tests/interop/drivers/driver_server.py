"""Run a driver behind the line protocol of `driver_process`: `python -m tests.interop.drivers.driver_server NAME`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from tests.interop.conftest import DRIVERS
from tests.interop.drivers.base import Fenced
from tests.interop.drivers.driver_process import Handle, pickled, unpickled

if TYPE_CHECKING:
    from tests.interop.drivers.base import Driver

RESULTS_KEPT = ("producer", "member")
"""Methods whose results stay in this process. The caller receives a number for each result."""


class DriverServer:
    """A driver, and the objects that its methods returned."""

    def __init__(self, driver: Driver) -> None:
        self._objects: list[Any] = [driver]

    def call(self, line: str) -> str:
        handle, method, arguments, named = unpickled(line)
        values = [
            self._objects[argument.number] if isinstance(argument, Handle) else argument for argument in arguments
        ]
        result = getattr(self._objects[handle.number], method)(*values, **named)
        if method not in RESULTS_KEPT:
            return pickled(result)
        self._objects.append(result)
        return pickled(Handle(len(self._objects) - 1))


def main() -> None:
    served = DriverServer(DRIVERS[sys.argv[1]]())
    replies = sys.stdout
    with redirect_stdout(sys.stderr):
        print("ok", file=replies, flush=True)
        for line in sys.stdin:
            try:
                print(f"result\t{served.call(line)}\nok", file=replies, flush=True)
            except Exception as error:
                kind = "Fenced" if isinstance(error, Fenced) else type(error).__name__
                message = repr(error).replace("\t", " ")
                print(f"error\t{kind}\t{kind}: {message}", file=replies, flush=True)
    sys.stderr.flush()
    os._exit(0)  # clients may have threads that never end


if __name__ == "__main__":
    main()
