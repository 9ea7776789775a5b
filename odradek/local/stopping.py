"""Stop several brokers in parallel: SIGTERM, a bounded wait, SIGKILL. Each broker has an outcome, which is reported.

A broker whose stop makes progress is not killed for STOP_WITH_PROGRESS_S_MAX seconds.
"""

from __future__ import annotations

import signal
import time
from enum import Enum
from typing import TYPE_CHECKING

from odradek.local.processes import (
    KILL_TIMEOUT_S,
    STOP_TIMEOUT_S,
    STOP_WITH_PROGRESS_S_MAX,
    BrokerProcess,
    ProcessId,
    await_stops,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Outcome(Enum):
    """Outcome of a stop for one broker."""

    STOPPED = "the broker ended after SIGTERM"
    KILLED = "the stop of the broker made no progress within the time-out, and the broker ended after SIGKILL"
    RUNNING = "the process still exists after SIGKILL"


def stop_all(processes: Sequence[BrokerProcess], timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
    """Send SIGTERM to all brokers, and SIGKILL to those whose stop makes no progress for `timeout_s` seconds.

    Return the node ids of the brokers that were killed. If the wait is interrupted, kill all brokers that remain. Raise
    BrokerFailed if a broker still runs after SIGKILL.
    """
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    try:
        await_stops({process.node_id: process.identity for process in running}, timeout_s)
        codes = {process.node_id: process.join(0.0) for process in processes}
    except BaseException:
        for process in processes:
            process.signal(signal.SIGKILL)
        raise
    return [process.node_id for process in running if codes[process.node_id] == -signal.SIGKILL]


def stop_identities(identities: Mapping[int, ProcessId], timeout_s: float = STOP_TIMEOUT_S) -> dict[int, Outcome]:
    """Stop brokers that need not be children of this process, as `stop_all` does. Return the outcome of each broker.

    A broker that is stopped by SIGSTOP continues first, because it would not receive SIGTERM.
    """
    for identity in identities.values():
        identity.signal(signal.SIGCONT)
        identity.signal(signal.SIGTERM)
    late = await_stops(identities, timeout_s)
    for node_id in late:
        identities[node_id].signal(signal.SIGKILL)
    running = _remaining({node_id: identities[node_id] for node_id in late}, KILL_TIMEOUT_S)
    return {
        node_id: Outcome.RUNNING if node_id in running else Outcome.KILLED if node_id in late else Outcome.STOPPED
        for node_id in identities
    }


def _remaining(identities: Mapping[int, ProcessId], timeout_s: float) -> list[int]:
    """Wait at most `timeout_s` seconds for the end of all processes. Return the node ids of those that still exist."""
    deadline = time.monotonic() + timeout_s
    return [
        node_id
        for node_id, identity in identities.items()
        if not identity.wait_ended(max(0.0, deadline - time.monotonic()))
    ]


def killed_message(node_id: int, timeout_s: float) -> str:
    """Return the message for a broker that did not end after SIGTERM and was killed."""
    return (
        f"broker {node_id} was killed, because its stop made no progress for {timeout_s:g} s or took longer than "
        f"{STOP_WITH_PROGRESS_S_MAX:g} s; its next start recovers its logs"
    )
