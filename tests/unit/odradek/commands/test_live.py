"""Live view of ``odradek status --watch``: the status of a cluster, or the reason why it is unknown."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from odradek.broker_interface import PORT_MAX
from odradek.commands.live import ENDED_HINT, KEYS_HINT, Window, keys_of, view
from odradek.commands.status_rows import Local
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import METRICS_PORT_OFFSET, StartOptions, make_plan, metrics_port
from odradek.local.plan import Plan

PLAN = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092, 2: 9093}, [], {1: 10092, 2: 10093})
PARTITION = {
    "topic": "payments", "partition": 0, "is_internal": False, "leader": 1, "replicas": [1, 2], "isr": [1],
    "log_start_offset": 0, "last_stable_offset": 4, "high_watermark": 7, "log_end_offset": 7,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "cluster_id": PLAN.cluster_id,
    "current_voters": [1],
    "controller_id": 1,
    "brokers": [{"node_id": 1, "is_fenced": False, "rack": None}],
    "partitions": [PARTITION],
    "under_replicated": ["payments-0"],
    "groups": [{"group": "app[red]", "type": "consumer", "state": "Stable", "lag": 3, "stable_lag": 0}],
    "transactions": None,
    "unreachable": [2],
}


def rendered(directory: Path, status: dict[str, Any], width: int = 200) -> str:
    output = StringIO()
    local = Local(ClusterDirectory(directory), ClusterState(PLAN))
    Console(file=output, width=width).print(view(local, status, width))
    return output.getvalue()


def shown(window: Window) -> list[str]:
    output = StringIO()
    Console(file=output, width=80, height=24, force_terminal=True, no_color=True, color_system=None).print(window)
    return output.getvalue().rstrip("\n").splitlines()


@pytest.mark.parametrize("local", [False, True])
def test_view_of_many_partitions_fits_a_terminal_of_80_by_24_and_scrolls(tmp_path: Path, *, local: bool) -> None:
    partitions = [{**PARTITION, "topic": "payments-of-europe", "partition": index} for index in range(40)]
    brokers = [
        {
            "node_id": 1,
            "host": "127.0.0.1",
            "port": 9092,
            "is_fenced": False,
            "rack": "eu-central-1a",
            "log_bytes": 10**12,
        }
    ]
    status = {**STATUS, "partitions": partitions, "brokers": brokers}
    of_directory = Local(ClusterDirectory(tmp_path), ClusterState(PLAN)) if local else None
    window = Window(view(of_directory, status, 80))
    first = shown(window)
    assert len(first) == 24
    assert max(map(len, first)) <= 80
    assert first[1].startswith("node_id")
    assert "more lines" in first[-1]
    lines = list(first)
    for _ in range(3):
        window.press(" ")
        lines += shown(window)
    rows = {line.split()[1] for line in lines if line.startswith("payments-of-europe")}
    assert rows == {str(index) for index in range(40)}
    assert shown(window)[-1].startswith("0 more lines")
    window.press("k")
    assert shown(window)[-1] == f"1 more lines; {KEYS_HINT}"
    window.hint = ENDED_HINT
    assert shown(window)[-1] == f"1 more lines; {ENDED_HINT}"


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"", []),
        (b"q\n", ["q", "\n"]),
        (b"\x1b[B\x1b[B\x1bOAj", ["\x1b[B", "\x1b[B", "\x1bOA", "j"]),
        (b"\x1b[6~\x1b[5~ ", ["\x1b[6~", "\x1b[5~", " "]),
    ],
)
def test_keys_of_one_read_are_separated(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


def test_view_shows_all_values_and_names_are_not_markup(tmp_path: Path) -> None:
    text = rendered(tmp_path, STATUS)
    for line in (
        "app[red]",
        "under-replicated: 1 of payments",
        "no response from broker 2: its groups and transactions are missing",
        "open transactions: unknown, no response from broker 2",
        "groups: 1",
    ):
        assert line in text
    assert "partitions: 1" in text


def test_view_of_a_failed_status_shows_the_reason(tmp_path: Path) -> None:
    text = rendered(tmp_path, {"failed": "no broker responds at 127.0.0.1:9092"})
    assert "no broker responds at 127.0.0.1:9092" in text
    assert "groups: unknown" in text


def test_brokers_keep_their_metrics_ports_in_the_next_plan(tmp_path: Path) -> None:
    cluster = ClusterDirectory(tmp_path)
    plan, ports = make_plan(cluster, None, StartOptions(2, None, 0))
    ports.close()
    assert len({*plan.ports.values(), *plan.metrics.values()}) == 4
    next_plan, ports = make_plan(cluster, ClusterState(plan), StartOptions(2))
    ports.close()
    assert next_plan.metrics == plan.metrics
    fixed, ports = make_plan(cluster, None, StartOptions(2, None, 9092))
    ports.close()
    assert fixed.metrics == {1: 9092 + METRICS_PORT_OFFSET, 2: 9093 + METRICS_PORT_OFFSET}
    assert metrics_port(PORT_MAX) == PORT_MAX - METRICS_PORT_OFFSET


def test_metrics_url_follows_the_plan_or_the_configured_listener() -> None:
    assert PLAN.metrics_url(2) == "http://127.0.0.1:10093/metrics"
    assert "odradek.metrics.listener=127.0.0.1:10092" in PLAN.properties(1, Path("/data"))

    def url_of(listener: str) -> str | None:
        return Plan("id", "127.0.0.1", {1: 9092}, [f"odradek.metrics.listener={listener}"], {1: 1}).metrics_url(1)

    assert url_of("") is None
    assert url_of(":7000") == "http://127.0.0.1:7000/metrics"
