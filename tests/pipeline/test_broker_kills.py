"""Whom the breaker hits when the cluster does not answer at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.cluster import lookup
from odradek.pipeline.faults import broker_kills as breaker
from odradek.pipeline.faults.broker_kills import BrokerKiller
from odradek.pipeline.flights.plan import BrokerKill, Target

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

KILL = BrokerKill(Target.LEADER, 0, 0.0, 3)


class Cluster:
    """Does not answer the first questions, as many of each as are given."""

    bootstrap = "127.0.0.1:1"

    def __init__(self, silences: int) -> None:
        self._silences = {"pids": silences, "leader": silences}
        self.killed: list[tuple[int, Mapping[int, int]]] = []

    def _silence(self, question: str, failure: Exception) -> None:
        if self._silences[question]:
            self._silences[question] -= 1
            raise failure

    def pids(self) -> dict[int, int]:
        self._silence("pids", RuntimeError("no broker answers"))
        return {2: 77}

    def leader(self, *_: object) -> int:
        self._silence("leader", ConnectionError("nobody knows the leader"))
        return 2

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        self.killed.append((node_id, pids))

    def restart(self, node_id: int) -> None:
        assert node_id == 2

    def await_in_sync(self, stopped: threading.Event) -> None:
        assert not stopped.is_set()


def run(monkeypatch: pytest.MonkeyPatch, silences: int) -> Cluster:
    cluster = Cluster(silences)
    monkeypatch.setattr(breaker, "DOWN_SECONDS", 0.0)
    monkeypatch.setattr(breaker, "RETRY_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(lookup, "leader", cluster.leader)
    events: list[Any] = []
    made = BrokerKiller(cluster, [KILL], "flights", "id", events.append)  # type: ignore[arg-type]
    made.committed(0)
    made.run(lambda: None)
    assert [event["event"] for event in events] == ["broker killed", "broker in sync"]
    return cluster


@pytest.mark.parametrize("silences", [0, 1, 3])
def test_what_nobody_knows_at_the_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch, silences: int) -> None:
    assert run(monkeypatch, silences).killed == [(2, {2: 77})]


def test_what_nobody_ever_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "RETRY_SECONDS_MAX", -1.0)
    with pytest.raises(RuntimeError, match="no broker answers"):
        run(monkeypatch, 1)
