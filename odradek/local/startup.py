"""Start several brokers at once and wait for all of them; stop several at once."""

from __future__ import annotations

import selectors
import signal
import time
from typing import TYPE_CHECKING, Protocol

from odradek.local.processes import STOP_TIMEOUT_S, BrokerFailed, BrokerProcess, ProcessId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_TIMEOUT_S = 60.0
NEWS_INTERVAL_S = 2.0
ABANDON_TIMEOUT_S = 5.0


class Report(Protocol):
    """Told about a start while it goes on: after every broker that is ready, and now and then meanwhile."""

    def __call__(self, ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None: ...


def tell_nobody(ready: Sequence[BrokerProcess], awaited: Sequence[BrokerProcess]) -> None:
    """For a start that nobody watches."""


def wait_ready(
    processes: Sequence[BrokerProcess], *, report: Report = tell_nobody, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Return when every one of them says that a transaction could commit.

    Raises:
        BrokerFailed: one has ended, or some were not ready in time; the others still run.
    """
    awaited, ready = list(processes), list[BrokerProcess]()
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(process, selectors.EVENT_READ, process)
        while awaited:
            left = deadline - time.monotonic()
            if left <= 0:
                raise BrokerFailed(not_ready(awaited, timeout_s))
            report(ready, awaited)
            for key, _ in selector.select(min(left, NEWS_INTERVAL_S)):
                heard: BrokerProcess = key.data
                if heard.is_ready():
                    selector.unregister(heard)
                    awaited.remove(heard)
                    ready.append(heard)
    report(ready, awaited)


def not_ready(awaited: Sequence[BrokerProcess], timeout_s: float) -> str:
    """Which brokers have not become ready, and what the first of them said last."""
    names = ", ".join(str(process.node_id) for process in awaited)
    first = awaited[0]
    said = first.last_words()
    text = f"not ready within {timeout_s:.0f} s: broker {names}; see {first.command.log}"
    return f"{text}, which ends: {said}" if said else text


def stop_all(processes: Sequence[BrokerProcess], timeout_s: float = STOP_TIMEOUT_S) -> int:
    """Stop them cleanly, at once. Returns the largest exit code."""
    for process in processes:
        process.ask_to_stop()
    return max((process.join(timeout_s) for process in processes), default=0)


def abandon(processes: Sequence[BrokerProcess]) -> None:
    """After a start that failed: the others of it, which may wait for the one that has."""
    stop_all(processes, ABANDON_TIMEOUT_S)


def stop_identities(identities: Mapping[int, ProcessId]) -> list[int]:
    """Stop brokers that somebody else may have started. Returns those that had to be killed, by node id."""
    for identity in identities.values():
        identity.signal(signal.SIGCONT)
        identity.signal(signal.SIGTERM)
    killed = []
    for node_id, identity in identities.items():
        if not identity.wait_gone(STOP_TIMEOUT_S):
            identity.signal(signal.SIGKILL)
            identity.wait_gone(STOP_TIMEOUT_S)
            killed.append(node_id)
    return killed
