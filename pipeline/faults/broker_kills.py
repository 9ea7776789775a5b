"""Kills brokers in the middle of the load, and brings each back: a leader first, then a coordinator.

Whom it hits is found out at that moment and as any client would, through Metadata and FindCoordinator. The broker stays
away for a while, so that the others have to go on without it; the next one is killed only when every replica is in sync again.
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

    from odradek.pipeline.cluster.own_cluster import OwnCluster

AWAY_SECONDS = 3.0
ASK_SECONDS_MAX = 30.0
"""How long a question about the cluster is asked again: a busy machine, or an election, leaves it open for a moment."""
ASK_INTERVAL_SECONDS = 0.2
T = TypeVar("T")
Commits = list[tuple[float, int]]
"""(time.monotonic, rows) of each commit, in order."""


@dataclass(frozen=True, slots=True)
class BrokerDeath:
    """A broker that was killed, and when; ``back_at``: when every replica was in sync again. Times of time.monotonic."""

    kill: BrokerKill
    node_id: int
    at: float
    back_at: float

    def gap(self, commits: Commits) -> float:
        """The longest time without a commit from the kill until the broker was back."""
        return longest_gap(commits, self.at, self.back_at)


class Breaker:
    """`run` in a thread of its own; `committed` and `stop` may be called from any."""

    def __init__(
        self,
        cluster: OwnCluster,
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
        self._moved = threading.Condition()
        self._stopped = threading.Event()
        self.deaths: list[BrokerDeath] = []

    def committed(self, hour: int) -> None:
        """The producer has committed up to this hour."""
        with self._moved:
            self._hour = max(self._hour, hour)
            self._moved.notify_all()

    def stop(self) -> None:
        self._stopped.set()
        with self._moved:
            self._moved.notify_all()

    def run(self, open_gate: Callable[[], None]) -> None:
        """Carry out the kills. Raises RuntimeError, OSError.

        ``open_gate`` is called twice: it lets the producer come to the last kill, and then beyond it, so that there is something
        left to commit however short the run.
        """
        for kill in self._kills:
            last = kill is self._kills[-1]
            if last:
                open_gate()
            pids = self._known(self._cluster.pids)
            self._await_hour(kill.after_hour)
            if self._stopped.wait(kill.delay_seconds):
                return
            node_id, at = self._strike(kill, pids)
            if last:
                open_gate()
            self._bring_back(kill, node_id, at)

    def _await_hour(self, hour: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._hour >= hour or self._stopped.is_set())

    def _strike(self, kill: BrokerKill, pids: dict[int, int]) -> tuple[int, float]:
        """Returns who was hit, and when."""
        node_id = self._known(lambda: self._target(kill))
        self._cluster.kill(node_id, pids)
        at = time.monotonic()
        self._on_event({"event": "broker killed", "kill": kill, "node_id": node_id, "at": at})
        return node_id, at

    def _bring_back(self, kill: BrokerKill, node_id: int, at: float) -> None:
        if self._stopped.wait(AWAY_SECONDS):
            return
        self._cluster.restart(node_id)
        self._cluster.await_whole(self._stopped)
        death = BrokerDeath(kill, node_id, at, time.monotonic())
        self.deaths.append(death)
        self._on_event({"event": "broker back", "death": death, "at": death.back_at})

    def _known(self, question: Callable[[], T]) -> T:
        """The answer, once there is one. Raises what the last attempt did."""
        deadline = time.monotonic() + ASK_SECONDS_MAX
        while True:
            try:
                return question()
            except (ConnectionError, RuntimeError):
                if time.monotonic() > deadline or self._stopped.wait(ASK_INTERVAL_SECONDS):
                    raise

    def _target(self, kill: BrokerKill) -> int:
        if kill.target is Target.LEADER:
            return lookup.leader(self._cluster.bootstrap, self._topic, kill.partition)
        return lookup.coordinator(self._cluster.bootstrap, self._transactional_id)


def longest_gap(commits: Commits, since: float = float("-inf"), until: float = float("inf")) -> float:
    """The longest time between two commits in a row that touches the span; 0.0 when there is none."""
    times = [at for at, _ in commits]
    pairs = itertools.pairwise(times)
    return max((later - earlier for earlier, later in pairs if since < later and earlier < until), default=0.0)
