"""Kill brokers during the load and restart each of them: first a partition leader, later a transaction coordinator.

The broker is selected at the time of the kill, as a client would find it: by Metadata or FindCoordinator. A killed
broker stays down for `DOWN_SECONDS`. The next broker is killed only when every replica is in sync again.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.cluster import lookup
from odradek.pipeline.flights.plan import BrokerKill, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.pipeline.cluster.demo_cluster import DemoCluster

DOWN_SECONDS = 3.0
"""Seconds that a killed broker stays down: long enough for an election and commits on the remaining brokers."""
RETRY_SECONDS_MAX = 30.0
"""Maximum seconds for the repetition of a failed query of the cluster.

An election, or a machine under load, makes a query fail for a moment.
"""
RETRY_INTERVAL_SECONDS = 0.2
"""Seconds between two attempts of a query of the cluster."""
T = TypeVar("T")
Commits = list[tuple[float, int]]
"""(seconds of time.monotonic, rows) of each commit, in order of time."""


@dataclass(frozen=True, slots=True)
class BrokerOutage:
    """One broker kill that was carried out.

    `killed_at` and `in_sync_at` are seconds of time.monotonic: the kill, and the time when every replica was in sync
    again.
    """

    kill: BrokerKill
    node_id: int
    killed_at: float
    in_sync_at: float

    def gap(self, commits: Commits) -> float:
        """Return the longest time without a commit, in seconds, between the kill and `in_sync_at`."""
        return longest_gap(commits, self.killed_at, self.in_sync_at)


class BrokerKiller:
    """Carry out the planned broker kills of one run. `run` blocks its thread; the other methods are thread-safe."""

    def __init__(
        self,
        cluster: DemoCluster,
        kills: Sequence[BrokerKill],
        topic: str,
        transactional_id: str,
        on_event: Callable[[dict[str, object]], None],
    ) -> None:
        self._cluster = cluster
        self._kills = kills
        self._topic = topic
        self._transactional_id = transactional_id
        self._on_event = on_event
        self._hour = -1
        self._hour_changed = threading.Condition()
        self._stopped = threading.Event()
        self.outages: list[BrokerOutage] = []

    def committed(self, hour: int) -> None:
        """Record that the producer has committed all hours up to `hour`."""
        with self._hour_changed:
            self._hour = max(self._hour, hour)
            self._hour_changed.notify_all()

    def stop(self) -> None:
        """Make `run` return without further kills."""
        self._stopped.set()
        with self._hour_changed:
            self._hour_changed.notify_all()

    def run(self, end_pause: Callable[[], None]) -> None:
        """Carry out the kills.

        Calls `end_pause` twice, before and after the last kill. The producer pauses at two hours, and continues with
        each call. Therefore even a short run has commits left after the last kill.

        Raises:
            RuntimeError: An `odradek` command failed.
            OSError: The leader or coordinator was not found, the cluster did not get in sync, or the kill failed.
        """
        for kill in self._kills:
            last = kill is self._kills[-1]
            if last:
                end_pause()
            pids = retried(self._cluster.pids, self._stopped)
            self._await_hour(kill.after_hour)
            if self._stopped.wait(kill.delay_seconds):
                return
            node_id, killed_at = self._kill(kill, pids)
            if last:
                end_pause()
            self._restart(kill, node_id, killed_at)

    def _await_hour(self, hour: int) -> None:
        with self._hour_changed:
            self._hour_changed.wait_for(lambda: self._hour >= hour or self._stopped.is_set())

    def _kill(self, kill: BrokerKill, pids: dict[int, int]) -> tuple[int, float]:
        """Kill the broker that `kill` describes. Return its node id and the time of the kill."""
        node_id = retried(lambda: self._target(kill), self._stopped)
        self._cluster.kill(node_id, pids)
        killed_at = time.monotonic()
        self._on_event({"event": "broker killed", "kill": kill, "node_id": node_id, "at": killed_at})
        return node_id, killed_at

    def _restart(self, kill: BrokerKill, node_id: int, killed_at: float) -> None:
        if self._stopped.wait(DOWN_SECONDS):
            return
        self._cluster.restart(node_id)
        self._cluster.await_in_sync(self._stopped)
        outage = BrokerOutage(kill, node_id, killed_at, time.monotonic())
        self.outages.append(outage)
        self._on_event({"event": "broker in sync", "outage": outage, "at": outage.in_sync_at})

    def _target(self, kill: BrokerKill) -> int:
        if kill.target is Target.LEADER:
            return lookup.leader(self._cluster.access, self._topic, kill.partition)
        return lookup.coordinator(self._cluster.access, self._transactional_id)


def retried(query: Callable[[], T], stopped: threading.Event) -> T:
    """Return the result of `query`, which is repeated after an error.

    After `RETRY_SECONDS_MAX`, or when `stopped` is set, raise the error of the last attempt.
    """
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        try:
            return query()
        except (ConnectionError, RuntimeError):
            if time.monotonic() > deadline or stopped.wait(RETRY_INTERVAL_SECONDS):
                raise


def longest_gap(commits: Commits, since: float = float("-inf"), until: float = float("inf")) -> float:
    """Return the longest time between two successive commits that overlaps `since` to `until`, in seconds.

    Return 0.0 if there is none.
    """
    pairs = itertools.pairwise(time_of_commit for time_of_commit, _ in commits)
    return max((later - earlier for earlier, later in pairs if since < later and earlier < until), default=0.0)
