"""Metrics, the live view of `odradek status`, and flame graphs of broker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.interop.test_command_line_records import piped
from tests.support.command_line import ODRADEK, TIMEOUT_S, json_output, odradek, terminal

if TYPE_CHECKING:
    from pathlib import Path

    from odradek import LocalCluster

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(bootstrap_options: tuple[str, str]) -> str:
    """Create a topic with three partitions, and return its name."""
    name = f"observed-{time.time_ns():x}"
    json_output("topics", "create", name, "--partitions", "3", *bootstrap_options)
    return name


def scraped(url: str) -> dict[str, float]:
    with urlopen(url, timeout=TIMEOUT_S) as response:
        lines = response.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics_url_of_status_exports_transactions_and_groups(
    cluster: LocalCluster, topic: str, bootstrap_options: tuple[str, str]
) -> None:
    metrics_before = scraped(urls(cluster)[0])
    piped("a\nb\n", "produce", topic, "--partition", "0", "--transaction", *bootstrap_options)
    piped("c\n", "produce", topic, "--partition", "0", "--abort", *bootstrap_options)
    group = f"{topic}-group"
    json_output("groups", "reset", group, "--topic", f"{topic}:0", "--to-earliest", "--execute", *bootstrap_options)
    open_one = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-open"})
    open_one.init_transactions(TIMEOUT_S)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=0)
    open_one.flush(TIMEOUT_S)
    metrics_after = scraped(urls(cluster)[0])

    def grown(name: str) -> float:
        return metrics_after[name] - metrics_before.get(name, 0)

    assert grown("odradek_transactions_committed_total") == 1
    assert grown("odradek_transactions_aborted_total") == 1
    assert grown('odradek_transactions{state="Ongoing"}') == 1
    assert metrics_after["odradek_transactions_oldest_open_seconds"] >= 0
    assert grown(f'odradek_group_lag{{group="{group}"}}') == 6  # with markers, as in Kafka
    assert grown(f'odradek_group_stable_lag{{group="{group}"}}') == 5
    assert grown(f'kafka_cluster_partition_laststableoffsetlag{{partition="0",topic="{topic}"}}') == 1
    assert grown('kafka_server_group_coordinator_metrics_group_count{protocol="classic",state="Empty"}') >= 1
    assert grown('kafka_network_requestmetrics_requests_total{request="EndTxn"}') == 2
    open_one.abort_transaction(TIMEOUT_S)


def test_metrics_count_refusals_and_fenced_producers(
    cluster: LocalCluster, topic: str, bootstrap_options: tuple[str, str]
) -> None:
    first = piped("a\n", "produce", topic, "--transactional-id", topic, *bootstrap_options)
    assert first.returncode == 0, first.stderr
    metrics_before = scraped(urls(cluster)[0])
    assert piped("b\n", "produce", topic, "--transactional-id", topic, *bootstrap_options).returncode == 0
    assert odradek("groups", "delete", f"{topic}-none", *bootstrap_options).returncode == 1
    metrics_after = scraped(urls(cluster)[0])
    fenced = "odradek_transactions_fenced_total"
    assert metrics_after[fenced] == metrics_before[fenced] + 1
    refused = 'kafka_network_requestmetrics_errors_total{error="GROUP_ID_NOT_FOUND",request="DeleteGroups"}'
    assert metrics_after[refused] == metrics_before.get(refused, 0) + 1


def urls(cluster: LocalCluster) -> list[str]:
    state = json_output("status", "--dir", str(cluster.directory.path))
    return [str(broker["metrics"]) for broker in state["brokers"]]


def test_live_view_of_status_shows_changes(
    cluster: LocalCluster, topic: str, bootstrap_options: tuple[str, str]
) -> None:
    controller, terminal_side = os.openpty()
    os.set_blocking(controller, True)
    watching = subprocess.Popen(
        [str(ODRADEK), "status", "--dir", str(cluster.directory.path), "--every", "0.2"],
        stdin=terminal_side,
        stdout=terminal_side,
        env={**terminal(250), "LINES": "200", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(terminal_side)
    group = f"{topic}-later"
    output = read_until(controller, "groups:")
    assert group not in output
    json_output("groups", "reset", group, "--topic", f"{topic}:0", "--to-earliest", "--execute", *bootstrap_options)
    read_until(controller, group)
    os.killpg(watching.pid, signal.SIGINT)
    remaining_output = read_until(controller, None)
    assert watching.wait(TIMEOUT_S) == 0, remaining_output
    os.close(controller)


def read_until(descriptor: int, word: str | None) -> str:
    """Read the output of a terminal until it contains `word`, or until its end."""
    text = ""
    while word is None or word not in text:
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # the process has closed the terminal
            chunk = b""
        if not chunk:
            break
        text += chunk.decode(errors="replace")
    assert word is None or word in text
    return text


PROFILED_PARTITIONS = 1_000
"""Partitions of the profiled broker. It closes their logs when it stops, which the profiler samples many times."""


def test_up_with_profile_writes_a_flame_graph(tmp_path: Path) -> None:
    started = odradek("up", "--brokers", "1", "--dir", str(tmp_path), "--port", "0", "--detach", "--profile")
    assert started.returncode == 0, started.stderr
    try:
        bootstrap = started.stdout.split()[1]
        lines = "".join(f"{number}\n" for number in range(5_000))
        finished = piped(lines, "produce", "profiled", "--bootstrap", bootstrap)
        assert "odradek topics create" in finished.stderr
        json_output("topics", "create", "profiled", "--partitions", str(PROFILED_PARTITIONS), "--bootstrap", bootstrap)
        assert piped(lines, "produce", "profiled", "--bootstrap", bootstrap).returncode == 0
    finally:
        odradek("down", "--dir", str(tmp_path))
    page = (tmp_path / "broker-1.profile.svg").read_text()
    assert "broker/node.py" in page
    assert "samples" in page
    assert "_run (odradek/broker/__main__.py" in page
