"""The live view draws whatever the cluster says, and why it says nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from odradek.commands.live import view
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import METRICS_PORT_OFFSET, StartOptions, make_plan, metrics_port
from odradek.local.plan import Plan
from odradek.local.ports import PORT_MAX

PLAN = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092, 2: 9093}, [], {1: 10092, 2: 10093})
PARTITION = {
    "topic": "payments", "partition": 0, "internal": False, "leader": 1, "replicas": [1, 2], "isr": [1], "log_start": 0,
    "last_stable_offset": 4, "high_watermark": 7, "log_end": 7,
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "controller": 1,
    "brokers": [{"node_id": 1, "fenced": False, "rack": None}],
    "partitions": [PARTITION],
    "under_replicated": ["payments-0"],
    "groups": [{"group": "app[red]", "type": "consumer", "state": "Stable", "lag": 3, "stable_lag": 0}],
    "transactions": None,
    "unreachable": [2],
}


def drawn(directory: Path, answer: dict[str, Any]) -> str:
    out = StringIO()
    cluster = ClusterDirectory(directory)
    Console(file=out, width=200).print(view(cluster, ClusterState(PLAN), answer))
    return out.getvalue()


def test_everything_is_drawn_and_names_are_no_markup(tmp_path: Path) -> None:
    text = drawn(tmp_path, ANSWER)
    for said in (
        "app[red]",
        "under-replicated: 1 of payments",
        "no response from broker 2: its groups and transactions are missing",
        "open transactions: unknown, no response from broker 2",
        "groups: 1",
    ):
        assert said in text
    assert "partitions: 1" in text


def test_a_cluster_that_does_not_answer_is_drawn_with_the_reason(tmp_path: Path) -> None:
    text = drawn(tmp_path, {"failed": "no broker answers at 127.0.0.1:9092"})
    assert "no broker answers at 127.0.0.1:9092" in text
    assert "groups: unknown" in text


def test_brokers_get_ports_for_metrics_and_keep_them(tmp_path: Path) -> None:
    cluster = ClusterDirectory(tmp_path)
    plan, held = make_plan(cluster, None, StartOptions(2, None, 0))
    held.close()
    assert len({*plan.ports.values(), *plan.metrics.values()}) == 4
    again, held = make_plan(cluster, ClusterState(plan), StartOptions(2))
    held.close()
    assert again.metrics == plan.metrics
    fixed, held = make_plan(cluster, None, StartOptions(2, None, 9092))
    held.close()
    assert fixed.metrics == {1: 9092 + METRICS_PORT_OFFSET, 2: 9093 + METRICS_PORT_OFFSET}
    assert metrics_port(PORT_MAX) == PORT_MAX - METRICS_PORT_OFFSET


def test_where_the_metrics_are() -> None:
    assert PLAN.metrics_url(2) == "http://127.0.0.1:10093/metrics"
    assert "odradek.metrics.listener=127.0.0.1:10092" in PLAN.properties(1, Path("/data"))

    def by_hand(listener: str) -> str | None:
        return Plan("id", "127.0.0.1", {1: 9092}, [f"odradek.metrics.listener={listener}"], {1: 1}).metrics_url(1)

    assert by_hand("") is None
    assert by_hand(":7000") == "http://127.0.0.1:7000/metrics"
