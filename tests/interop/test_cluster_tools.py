"""kafka-cluster, kafka-metadata-quorum and kafka-features print the same output with both brokers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker
    from tests.support.tool_comparison import ToolComparison
    from tests.support.tool_jvm import Finished

from tests.support.kafka_broker import CLUSTER_ID
from tests.support.tool_comparison import ADDRESS

TOOLS = "Kafka's tools 4.3"
CLUSTER, QUORUM, FEATURES = "kafka-cluster", "kafka-metadata-quorum", "kafka-features"
WE_HAVE = ("eligible.leader.replicas.version", "group.version", "transaction.version")
OF_ITS_OWN = (
    "HighWatermark",
    "LogEndOffset",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "DirectoryId",
    "ClusterId",
)
"""Values that differ between brokers: log lengths, directories, and times of requests."""
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.feature("kafka-cluster: cluster-id, list-endpoints, unregister", client=TOOLS)
def test_kafka_cluster_prints_the_same(
    pair: ToolComparison, odradek_cluster: LocalCluster, kafka_broker: KafkaBroker
) -> None:
    address = ("--bootstrap-server", ADDRESS)
    finished = pair.finished(CLUSTER, "cluster-id", *address)
    cluster_ids = {name: re.fullmatch(r"Cluster ID: (\S{22})\n", process.stdout) for name, process in finished.items()}
    assert all(cluster_ids.values()), finished
    assert [process.returncode for process in finished.values()] == [0, 0]
    assert cluster_ids["kafka"] is not None
    assert cluster_ids["kafka"][1] == CLUSTER_ID
    ports = {"odradek": odradek_cluster.bootstrap, "kafka": kafka_broker.bootstrap}
    for options in ((), ("--include-fenced-brokers",)):
        endpoints = pair.both(CLUSTER, "list-endpoints", *address, *options)
        rows = {
            name: [line.replace(ports[name].replace(":", " "), "HOST PORT") for line in lines]
            for name, lines in endpoints.items()
        }
        assert rows["odradek"] == rows["kafka"]
        assert rows["odradek"][-1] == "1 HOST PORT null unfenced broker"
    assert pair.same(CLUSTER, "unregister", *address, "--id", "9")[0] == "exit 1"


def table(finished: Finished) -> list[dict[str, str]]:
    """Return the rows of a table by column title, without values that differ between brokers.

    Two spaces or a tab separate columns.
    """
    assert finished.returncode == 0, finished.stderr
    titles, *rows = [
        re.split(r"\s*\t\s*|\s{2,}", line.strip()) for line in finished.stdout.splitlines() if line.strip()
    ]
    return [
        {title: "" if title in OF_ITS_OWN else value for title, value in zip(titles, row, strict=True)} for row in rows
    ]


@pytest.mark.feature("kafka-metadata-quorum: describe --status, --replication", client=TOOLS)
def test_metadata_quorum_tool_prints_the_same(pair: ToolComparison) -> None:
    output = pair.both(QUORUM, "describe", "--status")
    status = {name: [label(line) for line in lines] for name, lines in output.items()}
    assert status["odradek"] == status["kafka"]
    assert "LeaderId: 1" in status["odradek"]
    for options in ((), ("--human-readable",)):
        finished = pair.finished(QUORUM, "describe", "--replication", *options)
        rows = {name: table(tool_run) for name, tool_run in finished.items()}
        assert rows["odradek"] == rows["kafka"]
        [leader] = rows["odradek"]
        assert (leader["NodeId"], leader["Lag"], leader["Status"]) == ("1", "0", "Leader")


def label(line: str) -> str:
    """Return a line of the status without values that differ between clusters."""
    title = line.split(":", maxsplit=1)[0]
    return title if title in OF_ITS_OWN else line


@pytest.mark.feature("kafka-features: describe, upgrade, downgrade", client=TOOLS)
def test_features_tool_prints_the_same(pair: ToolComparison) -> None:
    output = pair.both(FEATURES, "describe")
    prefixes = tuple(f"Feature: {feature}" for feature in WE_HAVE)
    levels = {
        name: [line.split("Epoch")[0] for line in lines if line.startswith(prefixes)] for name, lines in output.items()
    }
    assert levels["odradek"] == levels["kafka"]
    assert len(levels["odradek"]) == len(WE_HAVE)
    pair.same(FEATURES, "upgrade", "--feature", "group.version=1", "--dry-run")
    pair.same(FEATURES, "upgrade", "--feature", "group.version=9")
    pair.same(FEATURES, "downgrade", "--feature", "group.version=0", "--dry-run")
    pair.same(FEATURES, "downgrade", "--feature", "share.version=0", "--dry-run")
    pair.same(FEATURES, "downgrade", "--feature", "no.such=0", "--dry-run")
    refused = pair.finished(FEATURES, "upgrade", "--release-version", "4.3", "--dry-run")["odradek"]
    assert refused.returncode == 1
    assert "does not support this feature." in refused.stdout + refused.stderr
