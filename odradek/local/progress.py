"""Progress of long operations, and failures of stops, on standard error.

On a terminal, it is a status line that changes. Elsewhere it is a line of output, and only for an operation that takes
longer than `QUIET_S`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self

from odradek.local.output import errors
from odradek.local.processes import still_runs
from odradek.local.stopping import Outcome, killed_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from rich.status import Status

    from odradek.local.processes import BrokerProcess, ProcessId

QUIET_S = 5.0
"""Seconds before the first line of progress if standard error is not a terminal."""


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """Show `text` while the block runs, if standard error is a terminal.

    A terminal that was closed (SIGHUP) does not prevent the block: it can be the stop of all brokers.
    """
    with ExitStack() as shown:
        if errors.is_terminal:
            status = errors.status(text)
            with suppress(OSError):
                status.start()
                shown.callback(_stop, status)
        yield


def _stop(status: Status) -> None:
    with suppress(OSError):
        status.stop()


def print_failures(identities: Mapping[int, ProcessId], outcomes: Mapping[int, Outcome], timeout_s: float) -> bool:
    """Print an error for each broker that did not end after SIGTERM. Return True if all brokers have ended."""
    with suppress(OSError):  # the terminal was closed (SIGHUP)
        for node_id, outcome in outcomes.items():
            if outcome is Outcome.KILLED:
                errors.print(killed_message(node_id, timeout_s), markup=False)
            elif outcome is Outcome.RUNNING:
                errors.print(still_runs(node_id, identities[node_id]), markup=False)
    return Outcome.RUNNING not in outcomes.values()


class StartProgress:
    """Progress of a start of brokers, as a `startup.Report`. It is shown while the context manager is open."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._status = errors.status("starting") if errors.is_terminal else None
        self._quiet_until = time.monotonic() + QUIET_S
        self._last_line = ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._open.enter_context(self._status)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def __call__(self, ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None:
        if not awaited:
            return
        text = f"waiting for {brokers(awaited)} (log: {awaited[0].command.log})"
        if ready:
            text = f"{brokers(ready)} ready, {text}"
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() > self._quiet_until and text != self._last_line:
            self._last_line = text
            errors.print(text, markup=False)


def brokers(processes: Sequence[BrokerProcess]) -> str:
    """Return the brokers' names as text: "broker 1, 2"."""
    return f"broker {', '.join(str(process.node_id) for process in processes)}"
