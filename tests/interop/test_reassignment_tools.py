"""Kafka's tools for reassignment, features and configurations, on three brokers of Odradek and of Apache Kafka.

The same commands in the same order must print the same output on both clusters. The output of Kafka is not stored.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from tests.support.kafka_cluster import KafkaCluster
from tests.support.tool_jvm import run_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BROKERS = 3
ATTEMPTS = 60
REASSIGN, ELECT, FEATURES = "kafka-reassign-partitions", "kafka-leader-election", "kafka-features"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

Cluster = LocalCluster | KafkaCluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Cluster]]:
    with LocalCluster(BROKERS) as odradek, KafkaCluster.local(BROKERS) as kafka:
        yield {"odradek": odradek, "kafka": kafka}


def comparable_lines(text: str) -> list[str]:
    """Return the lines without values that must differ: ids, ports, directories, the order of an ISR."""
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    text = re.sub(r"127\.0\.0\.1[: ]\d+", "HOST:PORT", text)
    text = re.sub(r"Isr: (\S+)", lambda outputs: f"Isr: {sorted(outputs[1].split(','))}", text)
    text = re.sub(r'"log_dirs":\[[^]]*\]', '"log_dirs":DIRS', text)
    text = re.sub(r"Local controller \d", "Local controller N", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("SLF4J", "at ", "\tat "))]


def run(cluster: Cluster, tool: str, *arguments: str) -> list[str]:
    subcommand = [arguments[0]] if tool == "kafka-cluster" else []
    other_arguments = arguments[len(subcommand) :]
    finished = run_tool(tool, *subcommand, "--bootstrap-server", cluster.bootstrap, *other_arguments)
    return [f"exit {finished.returncode}", *comparable_lines(finished.stdout)]


def same(clusters: dict[str, Cluster], tool: str, *arguments: str) -> list[str]:
    outputs = {name: run(cluster, tool, *arguments) for name, cluster in clusters.items()}
    assert outputs["odradek"] == outputs["kafka"]
    return outputs["odradek"]


def repeat_until(
    clusters: dict[str, Cluster], ready: Callable[[list[str]], bool], tool: str, *arguments: str
) -> list[str]:
    """Repeat a command on each cluster until its output meets a condition. The outputs must then be equal."""
    outputs = {}
    for name, cluster in clusters.items():
        for _ in range(ATTEMPTS):
            outputs[name] = run(cluster, tool, *arguments)
            if ready(outputs[name]):
                break
            time.sleep(0.5)
    assert outputs["odradek"] == outputs["kafka"]
    return outputs["odradek"]


def plan(path: Path, topic: str, **replicas: list[int]) -> str:
    """Write a file for kafka-reassign-partitions with the replicas of each partition: p0=[1, 2], p1=[...]."""
    rows = [{"topic": topic, "partition": int(name[1:]), "replicas": brokers} for name, brokers in replicas.items()]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def create(clusters: dict[str, Cluster], topic: str, *replicas: str) -> None:
    assignment = ("--replica-assignment", ",".join(replicas))
    assert same(clusters, "kafka-topics", "--create", "--topic", topic, *assignment)[0] == "exit 0"


def test_replicas_and_leaders_are_moved(clusters: dict[str, Cluster], tmp_path: Path) -> None:
    create(clusters, "moved", "1:2", "2:3", "3:1")
    goal = plan(tmp_path / "goal.json", "moved", p0=[3, 1], p1=[2, 3, 1])
    assert same(clusters, REASSIGN, "--reassignment-json-file", goal, "--execute")[0] == "exit 0"
    verified = repeat_until(
        clusters,
        lambda lines: sum("is completed" in line for line in lines) == 2,
        *(REASSIGN, "--reassignment-json-file", goal, "--verify"),
    )
    assert "Reassignment of partition moved-0 is completed." in verified
    described = same(clusters, "kafka-topics", "--describe", "--topic", "moved")
    assert "Topic: moved Partition: 0 Leader: 1 Replicas: 3,1 Isr: ['1', '3'] Elr: LastKnownElr:" in described
    moved_partition = ("--topic", "moved", "--partition", "0")
    for _ in range(2):
        assert same(clusters, ELECT, "--election-type", "preferred", *moved_partition)[0] == "exit 0"
    same(clusters, ELECT, "--election-type", "unclean", *moved_partition)
    same(clusters, ELECT, "--election-type", "preferred", "--topic", "moved", "--partition", "7")
    described = same(clusters, "kafka-topics", "--describe", "--topic", "moved")
    assert "Topic: moved Partition: 0 Leader: 3 Replicas: 3,1 Isr: ['1', '3'] Elr: LastKnownElr:" in described
    same(clusters, REASSIGN, "--reassignment-json-file", goal, "--cancel")
    assert same(clusters, REASSIGN, "--list")[1] == "No partition reassignments found."


def test_throttled_reassignment_completes_when_the_throttle_is_raised(
    clusters: dict[str, Cluster], tmp_path: Path
) -> None:
    create(clusters, "heavy", "1:2")
    load = ("--topic", "heavy", "--num-records", "4000", "--record-size", "1000", "--throughput", "-1")
    for cluster in clusters.values():
        assert run_tool("kafka-producer-perf-test", *load, "--bootstrap-server", cluster.bootstrap).returncode == 0
    goal = plan(tmp_path / "goal.json", "heavy", p0=[1, 3])
    move = (REASSIGN, "--reassignment-json-file", goal)
    assert same(clusters, *move, "--execute", "--throttle", "1000")[0] == "exit 0"
    topic = ("--entity-type", "topics", "--entity-name", "heavy")
    broker = ("--entity-type", "brokers", "--entity-name", "3")
    limits = same(clusters, "kafka-configs", "--describe", *topic)
    assert any("follower.replication.throttled.replicas=0:3" in line for line in limits)
    assert any("throttled.rate=1000" in line for line in same(clusters, "kafka-configs", "--describe", *broker))
    assert "Reassignment of partition heavy-0 is still in progress." in same(clusters, *move, "--verify")
    assert same(clusters, *move, "--execute", "--additional", "--throttle", "100000000")[0] == "exit 0"
    repeat_until(clusters, lambda lines: any("is completed" in line for line in lines), *move, "--verify")
    for entity in (topic, broker):
        described = same(clusters, "kafka-configs", "--describe", *entity)
        assert not any("throttled" in line for line in described), (
            "the tool must remove the throttles when the reassignment has completed"
        )


def test_features_are_downgraded_and_upgraded(clusters: dict[str, Cluster]) -> None:
    change = [
        ("downgrade", "transaction.version=1"),
        ("upgrade", "transaction.version=2"),
        ("upgrade", "transaction.version=3"),
        ("upgrade", "no.such=2"),
        ("downgrade", "eligible.leader.replicas.version=0"),
        ("upgrade", "eligible.leader.replicas.version=1"),
    ]
    codes = [same(clusters, FEATURES, verb, "--feature", feature)[0] for verb, feature in change]
    assert codes == ["exit 0", "exit 0", "exit 1", "exit 1", "exit 0", "exit 0"]


def test_configurations_are_changed(clusters: dict[str, Cluster]) -> None:
    create(clusters, "settings", "1:2:3")
    topic = ("--entity-type", "topics", "--entity-name", "settings")
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    one_broker = ("--entity-type", "brokers", "--entity-name", "1")
    alter = ("kafka-configs", "--alter")
    assert same(clusters, *alter, *topic, "--add-config", "cleanup.policy=[delete,compact]")[0] == "exit 0"
    assert same(clusters, *alter, *topic, "--add-config", "no.such=5")[0] == "exit 1"
    assert len(same(clusters, "kafka-configs", "--describe", *topic)) == 3
    assert same(clusters, *alter, *topic, "--delete-config", "cleanup.policy")[0] == "exit 0"
    assert same(clusters, *alter, *all_brokers, "--add-config", "log.segment.bytes=20000000")[0] == "exit 0"
    assert same(clusters, *alter, *one_broker, "--add-config", "log.segment.bytes=30000000")[0] == "exit 0"
    assert same(clusters, *alter, *one_broker, "--add-config", "node.id=3")[0] == "exit 1"
    assert same(clusters, *alter, *one_broker, "--add-config", "min.insync.replicas=3")[0] == "exit 1"
    assert same(clusters, *alter, *all_brokers, "--delete-config", "min.insync.replicas")[0] == "exit 1"
    assert len(same(clusters, "kafka-configs", "--describe", *all_brokers)) == 4
    assert len(same(clusters, "kafka-configs", "--describe", *one_broker)) == 3
    # A topic configuration affects the description of brokers, and the tool selects a broker at random.
    for entity in (all_brokers, one_broker):
        assert same(clusters, *alter, *entity, "--delete-config", "log.segment.bytes")[0] == "exit 0"


@pytest.mark.full
def test_stopped_broker_is_fenced_and_unregistered(clusters: dict[str, Cluster]) -> None:
    create(clusters, "waiting", "1:3")
    for cluster in clusters.values():
        cluster.kill(3)
    endpoints = ("kafka-cluster", "list-endpoints", "--include-fenced-brokers")
    repeat_until(clusters, lambda lines: "3 HOST:PORT null fenced broker" in lines, *endpoints)
    described = same(clusters, "kafka-topics", "--describe", "--topic", "waiting")
    assert "Topic: waiting Partition: 0 Leader: 1 Replicas: 1,3 Isr: ['1'] Elr: 3 LastKnownElr:" in described
    assert same(clusters, "kafka-cluster", "unregister", "--id", "9")[0] == "exit 1"
    assert same(clusters, "kafka-cluster", "unregister", "--id", "3")[0] == "exit 0"
    assert len(same(clusters, *endpoints)) == 1 + BROKERS
    # a broker that starts after its removal registers again
    for cluster in clusters.values():
        if isinstance(cluster, KafkaCluster):
            cluster.start_node(3)
        else:
            cluster.start(3)
    repeat_until(clusters, lambda lines: "3 HOST:PORT null unfenced broker" in lines, *endpoints)
