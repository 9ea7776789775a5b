"""kafka-metadata-quorum and kafka-dump-log on three brokers: status, replication, log and snapshots of the quorum."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from tests.support.jars import PREVIOUS
from tests.support.tool_jvm import run_tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOOL = "kafka-metadata-quorum"
UNTIL_S = 60


@pytest.fixture(scope="module")
def cluster_and_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Path]]:
    directory = tmp_path_factory.mktemp("quorum")
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with LocalCluster(brokers=3, directory=directory, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number in range(10):
            [created] = admin.create_topics([NewTopic(f"topic-{number}", 3, 3)]).values()
            created.result(timeout=30)
        yield cluster, directory


def describe(bootstrap: str, option: str) -> str:
    finished = run_tool(TOOL, "--bootstrap-server", bootstrap, "describe", option)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def labels(text: str) -> list[str]:
    return [line.split(":")[0] for line in text.splitlines() if line.strip()]


def test_status_has_the_format_of_kafka(
    cluster_and_directory: tuple[LocalCluster, Path], kafka_broker: KafkaBroker
) -> None:
    odradek = describe(cluster_and_directory[0].bootstrap, "--status")
    assert labels(odradek) == labels(describe(kafka_broker.bootstrap, "--status"))
    status = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in odradek.splitlines() if line.strip()}
    assert status["LeaderId"] in {"1", "2", "3"}
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 10
    assert [f'"id": {voter}' in status["CurrentVoters"] for voter in (1, 2, 3)] == [True] * 3
    assert status["CurrentObservers"] == "[]"


def test_replication_has_the_format_of_kafka(
    cluster_and_directory: tuple[LocalCluster, Path], kafka_broker: KafkaBroker
) -> None:
    kafka = describe(kafka_broker.bootstrap, "--replication").splitlines()
    deadline = time.monotonic() + UNTIL_S
    while True:
        odradek = describe(cluster_and_directory[0].bootstrap, "--replication").splitlines()
        rows = [line.split() for line in odradek[1:] if line.strip()]
        if all(row[3] == "0" for row in rows) or time.monotonic() > deadline:
            break
    assert odradek[0].split() == kafka[0].split()
    assert sorted(row[0] for row in rows) == ["1", "2", "3"]
    assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"]
    assert {row[3] for row in rows} == {"0"}, "a follower does not catch up"


def dump(path: Path) -> list[str]:
    tool = [
        "java",
        "-Xmx256M",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{PREVIOUS}/*",
        "org.apache.kafka.tools.DumpLogSegments",
    ]
    finished = subprocess.run(
        [*tool, "--cluster-metadata-decoder", "--files", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout.splitlines()


def newest(directory: Path, node_id: int, suffix: str) -> Path:
    """Return the newest snapshot or segment. Older ones may be deleted during the test."""
    return max((directory / f"broker-{node_id}" / "__cluster_metadata-0").glob(f"*{suffix}"))


def await_snapshot(directory: Path, node_id: int) -> None:
    """Wait until the log of a node reports a snapshot."""
    log = str(directory / f"broker-{node_id}.log")
    with subprocess.Popen(["tail", "--lines=+1", "--follow", log], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert any("metadata snapshot written" in line for line in tail.stdout)
        tail.terminate()


def test_dump_log_decodes_the_snapshots(cluster_and_directory: tuple[LocalCluster, Path]) -> None:
    for node_id in (1, 2, 3):
        await_snapshot(cluster_and_directory[1], node_id)
        path = newest(cluster_and_directory[1], node_id, ".checkpoint")
        lines = dump(path)
        end_offset, epoch = path.name.removesuffix(".checkpoint").split("-")
        assert lines[1] == f"Snapshot end offset: {int(end_offset)}, epoch: {int(epoch)}"
        assert "SnapshotHeader" in lines[3]
        assert "SnapshotFooter" in lines[-1]
        text = "\n".join(lines)
        assert '"name":"topic-0"' in text
        assert text.count('"type":"PARTITION_RECORD"') == 3 * text.count('"type":"TOPIC_RECORD"') > 10
        assert text.count('"type":"REGISTER_BROKER_RECORD"') == 3
        assert "isvalid: false" not in text.lower()


def test_dump_log_decodes_the_metadata_log_of_each_voter(tmp_path: Path) -> None:
    with LocalCluster(brokers=3, directory=tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        [created] = admin.create_topics([NewTopic("t", 3, 3)]).values()
        created.result(timeout=30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(3):  # each partition has another leader, which must have applied its record
            producer.produce("t", b"x", partition=partition)
        assert producer.flush(UNTIL_S) == 0
    for node_id in (1, 2, 3):
        [path] = (tmp_path / f"broker-{node_id}" / "__cluster_metadata-0").glob("*.log")
        lines = dump(path)
        assert not [line for line in lines if "mismatch" in line.lower() or "found invalid" in line.lower()]
        text = "\n".join(lines)
        assert "LeaderChange" in text, "every epoch must begin with a LeaderChange record"
        assert text.count('"type":"REGISTER_BROKER_RECORD"') >= 3
        assert text.count('"type":"TOPIC_RECORD"') == 1
        assert text.count('"type":"PARTITION_RECORD"') == 3
        assert "isvalid: false" not in text.lower()
