"""``python -m tests.interop.drivers.served NAME``: a driver that is called over lines, see `own_process`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from tests.interop.conftest import DRIVERS
from tests.interop.drivers.base import Fenced
from tests.interop.drivers.own_process import Handle, pickled, unpickled

if TYPE_CHECKING:
    from tests.interop.drivers.base import Driver

MADE_HERE = ("producer", "member")
"""Calls whose results stay in this process; the caller is given a number for them."""


class Served:
    """The driver and what it has made."""

    def __init__(self, driver: Driver) -> None:
        self._made: list[Any] = [driver]

    def answer(self, line: str) -> str:
        handle, method, arguments, named = unpickled(line)
        given = [self._made[each.number] if isinstance(each, Handle) else each for each in arguments]
        found = getattr(self._made[handle.number], method)(*given, **named)
        if method not in MADE_HERE:
            return pickled(found)
        self._made.append(found)
        return pickled(Handle(len(self._made) - 1))


def main() -> None:
    served = Served(DRIVERS[sys.argv[1]]())
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        print("ok", file=answers, flush=True)
        for line in sys.stdin:
            try:
                print(f"result\t{served.answer(line)}\nok", file=answers, flush=True)
            except Exception as failed:
                kind = "Fenced" if isinstance(failed, Fenced) else type(failed).__name__
                words = repr(failed).replace("\t", " ")
                print(f"error\t{kind}\t{kind}: {words}", file=answers, flush=True)
    sys.stderr.flush()
    os._exit(0)  # clients have threads that nobody waits for


if __name__ == "__main__":
    main()
