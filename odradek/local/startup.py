"""Wait until several brokers are ready, and stop those of a start that failed."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING, Protocol

from odradek.local.processes import BrokerFailed, BrokerProcess
from odradek.local.stopping import stop_all

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT_S = 60.0
"""Maximum seconds until all brokers of one start are ready.

It begins again while a broker logs the progress of its recovery: a stop then would lose that progress.
"""
RECOVERY_EVENT = "log recovery progress"
"""Event in the log of a broker that recovers its logs after an unclean shutdown, every five seconds."""
REPORT_INTERVAL_S = 2.0
"""Maximum seconds between two progress reports of a start."""
FAILED_START_STOP_TIMEOUT_S = 5.0
"""Seconds between SIGTERM and SIGKILL for the remaining brokers of a start that failed."""


class Report(Protocol):
    """Callback for progress of a start: each time a broker becomes ready, and at least every `REPORT_INTERVAL_S`."""

    def __call__(self, ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None: ...


def no_report(ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None:
    """Ignore the progress of a start."""


def wait_ready(
    processes: Sequence[BrokerProcess], *, report: Report = no_report, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Return when each of the brokers is ready: a transaction can commit.

    Raises:
        BrokerFailed: A broker has ended, or brokers are not ready after `timeout_s` seconds in which their recovery
            made no progress. The remaining brokers still run.
    """
    awaited, ready = list(processes), list[BrokerProcess]()
    deadline = time.monotonic() + timeout_s
    recovered = dict.fromkeys(processes, "")
    with selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(process, selectors.EVENT_READ, process)
        while awaited:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                progress = {process: process.last_log_line(RECOVERY_EVENT) for process in awaited}
                if all(recovered[process] == line for process, line in progress.items()):
                    raise BrokerFailed(not_ready(awaited, timeout_s))
                recovered |= progress
                deadline = time.monotonic() + timeout_s
                continue
            report(ready, awaited)
            for key, _ in selector.select(min(remaining_s, REPORT_INTERVAL_S)):
                readable: BrokerProcess = key.data
                if readable.is_ready():
                    selector.unregister(readable)
                    awaited.remove(readable)
                    ready.append(readable)
    report(ready, awaited)


def not_ready(awaited: Sequence[BrokerProcess], timeout_s: float) -> str:
    """Return an error message with the brokers that are not ready, and the last log line of the first of them."""
    names = ", ".join(str(process.node_id) for process in awaited)
    first = awaited[0]
    last_line = first.last_log_line()
    text = f"not ready within {timeout_s:.0f} s: broker {names}; see {first.command.log}"
    return f"{text}, whose last line is: {last_line}" if last_line else text


def stop_after_failed_start(processes: Sequence[BrokerProcess]) -> None:
    """Stop all brokers of a start that failed. They may wait for the broker that did not start, and never be ready."""
    stop_all(processes, FAILED_START_STOP_TIMEOUT_S)
