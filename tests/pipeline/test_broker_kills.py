"""BrokerKiller: queries of the cluster that fail are repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.cluster import lookup
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.faults import broker_kills
from odradek.pipeline.faults.broker_kills import BrokerKiller
from odradek.pipeline.flights.plan import BrokerKill, Target

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

KILL = BrokerKill(Target.LEADER, 0, 0.0, 3)


class FailingCluster:
    """Fake of DemoCluster. The first `failures` queries of each kind fail."""

    access = Access("127.0.0.1:1")

    def __init__(self, failures: int) -> None:
        self._failures_left = {"pids": failures, "leader": failures}
        self.killed: list[tuple[int, Mapping[int, int]]] = []

    def _fail(self, query: str, error: Exception) -> None:
        if self._failures_left[query]:
            self._failures_left[query] -= 1
            raise error

    def pids(self) -> dict[int, int]:
        self._fail("pids", RuntimeError("no broker responds"))
        return {2: 77}

    def leader(self, *_: object) -> int:
        self._fail("leader", ConnectionError("no leader is known"))
        return 2

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        self.killed.append((node_id, pids))

    def restart(self, node_id: int) -> None:
        assert node_id == 2

    def await_in_sync(self, stopped: threading.Event) -> None:
        assert not stopped.is_set()


def run(monkeypatch: pytest.MonkeyPatch, failures: int) -> FailingCluster:
    cluster = FailingCluster(failures)
    monkeypatch.setattr(broker_kills, "DOWN_SECONDS", 0.0)
    monkeypatch.setattr(broker_kills, "RETRY_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(lookup, "leader", cluster.leader)
    events: list[Any] = []
    killer = BrokerKiller(cluster, [KILL], "flights", "id", events.append)  # type: ignore[arg-type]
    killer.committed(0)
    killer.run(lambda: None)
    assert [event["event"] for event in events] == ["broker killed", "broker in sync"]
    return cluster


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_failed_query_is_repeated_until_it_succeeds(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    assert run(monkeypatch, failures).killed == [(2, {2: 77})]


def test_query_that_keeps_failing_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_kills, "RETRY_SECONDS_MAX", -1.0)
    with pytest.raises(RuntimeError, match="no broker responds"):
        run(monkeypatch, 1)
