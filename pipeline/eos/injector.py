"""Inject the faults that a run of the driver survives: kills of Python workers and brokers, more partitions."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, Protocol

from odradek.pipeline.cluster import lookup
from odradek.pipeline.cluster.topics import add_partitions
from odradek.pipeline.eos.plan import FIRST_STEP, Fault
from odradek.pipeline.faults.broker_kills import DOWN_SECONDS, retried

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.eos.driver_process import DriverProcess
    from odradek.pipeline.eos.plan import Run

ADDED_PARTITIONS: Final = 2
"""Partitions that are added to a topic."""
WORKERS_INTERVAL_SECONDS: Final = 0.05
"""Seconds between two searches for Python workers: a batch that begins may have none yet."""
WORKERS_SECONDS_MAX: Final = 30.0
"""Maximum seconds until a batch has Python workers."""
REPLACED_SECONDS_MAX: Final = 2.0
"""Maximum seconds until Spark has started a worker in place of one that was killed: about the duration of a batch."""


class Brokers(Protocol):
    """Brokers of a campaign, as `DemoCluster` has them."""

    access: Access

    def pids(self) -> Mapping[int, int]:
        """Return the process ids of the running brokers by node id."""

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        """Send SIGKILL to one broker."""

    def restart(self, node_id: int) -> None:
        """Start a broker that was killed, and return when it is ready."""

    def await_in_sync(self, stopped: threading.Event) -> None:
        """Wait until every replica is in sync."""


class Injector:
    """Faults that concern brokers, topics and Python workers."""

    def __init__(
        self, brokers: Brokers, topics: Mapping[str, int], output: str, transactional_id: str, stopped: threading.Event
    ) -> None:
        self._brokers = brokers
        self._topics = dict(topics)
        self._output = output
        self._transactional_id = transactional_id
        self._stopped = stopped

    @property
    def topics(self) -> Mapping[str, int]:
        """Partition count of each topic."""
        return self._topics

    def inject(self, run: Run, driver: DriverProcess) -> str:
        """Inject the fault of a run into a paused driver, and let it continue. Return a description."""
        match run.fault:
            case Fault.WORKERS:
                return kill_workers(run, driver, self._stopped)
            case Fault.LEADER | Fault.COORDINATOR:
                return self._kill_broker(run, driver)
            case Fault.PARTITIONS:
                return self._add_partitions(driver)
        raise ValueError(f"no fault of brokers, topics or workers: {run.fault}")

    def _kill_broker(self, run: Run, driver: DriverProcess) -> str:
        pids = retried(self._brokers.pids, self._stopped)
        node_id = retried(lambda: self._target(run), self._stopped)
        self._brokers.kill(node_id, pids)
        driver.proceed()
        self._stopped.wait(DOWN_SECONDS)
        self._brokers.restart(node_id)
        self._brokers.await_in_sync(self._stopped)
        return f"killed and restarted broker {node_id}"

    def _target(self, run: Run) -> int:
        if run.fault is Fault.LEADER:
            return lookup.leader(self._brokers.access, self._output, run.partition)
        return lookup.coordinator(self._brokers.access, self._transactional_id)

    def _add_partitions(self, driver: DriverProcess) -> str:
        for topic, count in self._topics.items():
            self._topics[topic] = count + ADDED_PARTITIONS
        add_partitions(self._brokers.access, self._topics)
        driver.proceed()
        counts = ", ".join(f"{topic} has {count}" for topic, count in self._topics.items())
        return f"added partitions: {counts}"


def kill_workers(run: Run, driver: DriverProcess, stopped: threading.Event) -> str:
    """Let a paused driver continue, and kill its Python workers until the sink repeats a batch. Return a description.

    Workers of an earlier batch may be idle, and no task fails when they are killed. So the workers that Spark starts in
    their place are killed, too. A kill in a task before the shuffle does not repeat the batch either. If the paused
    batch is not repeated, workers are killed again in the next batches before the end of the run.
    """
    assert run.fault_at is not None, "the driver is paused"
    assert run.end_at is not None, "a run with this fault has a pause at its end"
    driver.proceed()
    killed: set[int] = set()
    for number in range(run.end_at.batches - run.fault_at.batches):
        if number:
            driver.await_step(FIRST_STEP)
        stopped.wait(run.delay_seconds)
        killed |= _kill(driver, killed, WORKERS_SECONDS_MAX, stopped)
        if not killed:
            raise RuntimeError(f"no Python worker ran within {WORKERS_SECONDS_MAX:.0f} s")
        if not number:  # the sink gives up after three attempts, so few kills may be in one batch
            killed |= _kill(driver, killed, REPLACED_SECONDS_MAX, stopped)
        if _is_repeated(driver):
            return f"killed {len(killed)} Python workers, and the batch was repeated"
    return f"killed {len(killed)} Python workers, and no batch was repeated"


def _kill(driver: DriverProcess, known: set[int], seconds: float, stopped: threading.Event) -> set[int]:
    """Kill the Python workers that are not in `known`. Return their process ids, or none after `seconds`."""
    for _ in range(int(seconds / WORKERS_INTERVAL_SECONDS)):
        killed = set()
        for pid in set(driver.workers()) - known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if killed:
            return killed
        stopped.wait(WORKERS_INTERVAL_SECONDS)
    return set()


def _is_repeated(driver: DriverProcess) -> bool:
    """Return True if the current batch begins again, and False at its end."""
    while (event := driver.wait_for("step", "batch")).name == "step":
        if event.details["step"] == FIRST_STEP:
            return True
    return False
