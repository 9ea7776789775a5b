"""Commands that change partitions, records, quotas, features and brokers, against Odradek and Apache Kafka.

The same commands in the same order must print the same JSON for both clusters.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from odradek import LocalCluster
from tests.support.command_line import odradek
from tests.support.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BROKERS = 3
DEADLINE_S = 60.0
INTERVAL_S = 0.3
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

Cluster = LocalCluster | KafkaCluster


def printed(cluster: Cluster, *words: str) -> tuple[int, Any]:
    """Return exit code and JSON of a command, or its error without the address of a broker."""
    finished = odradek(*words, "--bootstrap", cluster.bootstrap, "--json")
    if not finished.stdout:
        return finished.returncode, finished.stderr
    return finished.returncode, json.loads(finished.stdout)


def until(cluster: Cluster, accepted: Callable[[Any], bool], *words: str) -> Any:
    """Repeat a command until its JSON is accepted, and return it."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = printed(cluster, *words)[1]
        if accepted(result) or time.monotonic() > deadline:
            assert accepted(result), result
            return result
        time.sleep(INTERVAL_S)


def steps(cluster: Cluster, plan: Path) -> list[Any]:
    """Run all commands, and return what must be equal on each cluster."""
    run = partial(printed, cluster)
    found: list[Any] = []
    assert run("topics", "create", "t", "--partitions", "2", "--replication-factor", "2")[0] == 0
    found += [run("partitions", "add", "t", "3"), run("partitions", "add", "t", "2")[0]]
    until(cluster, lambda rows: len(rows) == 3, "topics", "describe", "t")
    found.append(run("partitions", "reassign", "t:0", "--replicas", "3,1"))
    found.append(run("partitions", "reassign", "t", "--brokers", "1,2,3", "--dry-run"))
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 1, "replicas": [2, 1]}]}))
    found.append(run("partitions", "reassign", "--from-file", str(plan)))
    found.append(run("partitions", "reassign", "--list"))
    found.append(run("partitions", "reassign", "t", "--cancel")[0])
    moved = until(
        cluster, lambda rows: [row["replicas"] for row in rows[:2]] == [[3, 1], [2, 1]], "topics", "describe", "t"
    )
    found.append([(row["partition"], row["replicas"], sorted(row["isr"])) for row in moved[:2]])
    assert run("partitions", "elect", "t")[0] == 0
    until(cluster, lambda rows: [row["leader"] for row in rows[:2]] == [3, 2], "topics", "describe", "t")
    found += [run("partitions", "elect", "t:0"), run("partitions", "elect", "absent")[0]]
    found.append(odradek("produce", "t", "v", "-b", cluster.bootstrap).returncode)
    found += [run("records", "delete", "t", "--all")[0], run("records", "delete", "t:0", "--before", "9")[0]]
    found.append(run("quotas", "set", "producer_byte_rate=1000000", "--user", "alice", "--client-id", "<default>"))
    found.append(run("quotas", "set", "request_percentage=12.5", "--user", "<default>"))
    found.append(until(cluster, lambda rows: len(rows) == 2, "quotas", "list"))
    found.append(run("quotas", "list", "--user", "alice"))
    found.append(run("quotas", "set", "no_such_quota=1", "--user", "alice")[0])
    assert run("quotas", "remove", "producer_byte_rate", "--user", "alice", "--client-id", "<default>")[0] == 0
    assert run("quotas", "remove", "request_percentage", "--user", "<default>")[0] == 0
    found.append(until(cluster, lambda rows: rows == [], "quotas", "list"))
    before = {row["feature"]: row["finalized_version_level"] for row in run("features", "list")[1]}
    found.append(before["transaction.version"])
    found.append(run("features", "downgrade", "transaction.version=1"))
    until(cluster, lambda rows: ("transaction.version", 1) in levels(rows), "features", "list")
    found.append(run("features", "upgrade", "transaction.version=2"))
    until(cluster, lambda rows: ("transaction.version", 2) in levels(rows), "features", "list")
    found += [run("features", "upgrade", "transaction.version=99")[0], run("brokers", "unregister", "99")[0]]
    found.append(run("topics", "describe", "--under-replicated"))
    status = run("status", "--once")[1]
    found.append([(row["node_id"], row["state"]) for row in status["brokers"]])
    found += [status["current_voters"], until(cluster, lambda row: row["healthy"], "health")]
    return found


def levels(rows: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(row["feature"], row["finalized_version_level"]) for row in rows}


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Cluster]]:
    with LocalCluster(BROKERS) as odradek_cluster, KafkaCluster.local(BROKERS) as kafka:
        yield [odradek_cluster, kafka]


@pytest.mark.full
def test_commands_have_equal_effects_on_odradek_and_on_kafka(clusters: list[Cluster], tmp_path: Path) -> None:
    ours, theirs = (steps(cluster, tmp_path / "plan.json") for cluster in clusters)
    assert ours == theirs


@pytest.mark.full
def test_health_names_the_broker_that_is_down(clusters: list[Cluster]) -> None:
    local = clusters[0]
    assert isinstance(local, LocalCluster)
    assert printed(local, "topics", "create", "h", "--replication-factor", "3")[0] == 0
    local.kill(3)
    try:
        until(local, lambda row: "broker 3 is fenced" in {each["problem"] for each in row["problems"]}, "health")
        assert printed(local, "health")[0] == 1
        assert any(3 in row["replicas"] for row in printed(local, "topics", "describe", "--under-replicated")[1])
        assert odradek("health", "--bootstrap", "127.0.0.1:1").returncode == 2
        assert odradek("logs", "3", "--lines", "1", "--dir", str(local.directory.path)).stdout.startswith("3 | ")
    finally:
        local.start(3)
    until(local, lambda row: row["healthy"], "health")
    assert printed(local, "topics", "delete", "h")[0] == 0
