"""Kafka's tool decodes a metadata log that Odradek wrote to the same metadata."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.storage import PartitionRaftStorage
from odradek.cluster.controller.messages.brokers import ControllerRegistration
from odradek.cluster.controller.messages.topics import NewPartitions, NewTopic, TopicName
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.metadata.image import METADATA_TOPIC_ID, Endpoint
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.os_disk import OsDisk
from tests.support.controller_node import ControllerNode
from tests.support.jars import PREVIOUS
from tests.support.logs import load_all

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.cluster.metadata.image import MetadataImage
    from odradek.storage.log.log import PartitionLog

pytestmark = pytest.mark.interop


def open_log(directory: Path) -> tuple[LogManager, PartitionLog]:
    logs = LogManager(OsDisk(), str(directory), LogConfig())
    load_all(logs, SystemClock().wall_ms())
    return logs, logs.create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, LogConfig(), SystemClock().wall_ms())


async def run_controller(directory: Path, incarnation: int, topics: list[NewTopic]) -> MetadataImage:
    """Start a controller on `directory`, change the metadata, and end without a clean shutdown."""
    logs, log = open_log(directory)
    storage = PartitionRaftStorage(logs, log, [1], SystemClock(), sole_voter=True)
    node = ControllerNode(storage, incarnation)
    await node.start()
    service = node.service
    controller = ControllerRegistration(
        1, UUID(int=incarnation), (Endpoint("C", "localhost", 19093),), SUPPORTED_FEATURES
    )
    await service.register_controller(controller)
    await service.create_topics(topics)
    await service.create_partitions([NewPartitions("orders", len(node.cache.image.topics["orders"].partitions) + 2)])
    await service.delete_topics([TopicName("gone")])
    await service.allocate_producer_ids(1, node.lifecycle.broker_epoch)
    await node.kill()
    assert node.failures == []
    log.close(clean=False)
    return node.cache.image


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MetadataImage]:
    directory = tmp_path_factory.mktemp("metadata")
    topics = [NewTopic("orders", 3, configs=(("retention.ms", "1000"),)), NewTopic("gone", 1)]
    asyncio.run(run_controller(directory, 7, topics))
    image = asyncio.run(run_controller(directory, 8, [NewTopic("later", 2)]))
    return directory / f"{CLUSTER_METADATA}-0", image


def dump(folder: Path) -> str:
    log = folder / "00000000000000000000.log"
    tool = [
        "java",
        "-Xmx256M",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{PREVIOUS}/*",
        "org.apache.kafka.tools.DumpLogSegments",
    ]
    finished = subprocess.run(
        [*tool, "--cluster-metadata-decoder", "--deep-iteration", "--files", str(log)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "xception" not in finished.stdout + finished.stderr
    return finished.stdout


def test_kafka_decodes_the_metadata_log(written: tuple[Path, MetadataImage]) -> None:
    folder, image = written
    text = dump(folder)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert offsets == list(range(image.offset + 1))
    assert "isvalid: false" not in text
    assert text.count("LeaderChange: ") == 2
    payloads = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]
    assert len(payloads) == len(offsets) - 2
    assert replayed(payloads) == comparable(image)


def replayed(payloads: list[dict[str, Any]]) -> dict[str, Any]:
    """Build the metadata from the output of Kafka's decoder. It uses no code of the product."""
    topics: dict[str, dict[str, Any]] = {}
    features, configs, broker, next_id = {}, {}, {}, 0
    for payload in payloads:
        data = payload["data"]
        match payload["type"]:
            case "TOPIC_RECORD":
                topics[data["topicId"]] = {"name": data["name"], "partitions": {}}
            case "PARTITION_RECORD":
                row = [data["leader"], data["leaderEpoch"], data["isr"], data["directories"]]
                topics[data["topicId"]]["partitions"][data["partitionId"]] = row
            case "PARTITION_CHANGE_RECORD":
                row = topics[data["topicId"]]["partitions"][data["partitionId"]]
                row[0], row[1] = data["leader"], row[1] + 1
            case "REMOVE_TOPIC_RECORD":
                del topics[data["topicId"]]
            case "FEATURE_LEVEL_RECORD":
                features[data["name"]] = data["featureLevel"]
            case "CONFIG_RECORD":
                configs[data["resourceName"], data["name"]] = data["value"]
            case "PRODUCER_IDS_RECORD":
                next_id = data["nextProducerId"]
            case "REGISTER_BROKER_RECORD":
                broker = {"epoch": data["brokerEpoch"], "fenced": data["fenced"]}
            case "BROKER_REGISTRATION_CHANGE_RECORD":
                broker["fenced"] = data["fenced"] == 1
    named = {topic["name"]: topic["partitions"] for topic in topics.values()}
    return {"topics": named, "features": features, "configs": configs, "broker": broker, "next": next_id}


def comparable(image: MetadataImage) -> dict[str, Any]:
    topics = {
        name: {
            p.index: [p.leader, p.leader_epoch, list(p.isr), [text_of(d) for d in p.directories]]
            for p in topic.partitions.values()
        }
        for name, topic in image.topics.items()
    }
    configs = {(topic, name): value for (_, topic), row in image.configs.items() for name, value in row.items()}
    broker = {"epoch": image.brokers[1].epoch, "fenced": image.brokers[1].fenced}
    return {
        "topics": topics,
        "features": dict(image.features),
        "configs": configs,
        "broker": broker,
        "next": image.next_producer_id,
    }


def text_of(uuid: UUID) -> str:
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def test_quorum_state_file_equals_that_of_kafka(written: tuple[Path, MetadataImage]) -> None:
    folder, _ = written
    # what a 4.3.1 controller with one voter writes after its second start
    expected = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert (folder / "quorum-state").read_text() == expected
