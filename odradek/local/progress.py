"""How a start goes on, on standard error: a line that changes on a terminal; elsewhere a line when it takes its time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from odradek.local.output import errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from odradek.local.processes import BrokerProcess

QUIET_S = 5.0


class StartProgress:
    """A context manager that is a `startup.Report`."""

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._status = errors.status("starting") if errors.is_terminal else None
        self._quiet_until = time.monotonic() + QUIET_S
        self._told = ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._shown.enter_context(self._status)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._shown.close()

    def __call__(self, ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None:
        if not awaited:
            return
        text = f"waiting for {brokers(awaited)} (log: {awaited[0].command.log})"
        if ready:
            text = f"{brokers(ready)} ready, {text}"
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() > self._quiet_until and text != self._told:
            self._told = text
            errors.print(text, markup=False)


def brokers(processes: Sequence[BrokerProcess]) -> str:
    return f"broker {', '.join(str(process.node_id) for process in processes)}"
