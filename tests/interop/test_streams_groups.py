"""`odradek groups` with a streams group (KIP-1071) of Kafka Streams on Apache Kafka. Odradek has no such groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.drivers.base import ProducerOptions
from tests.interop.test_streams import WordCount, await_counts
from tests.support.command_line import json_output, odradek

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.drivers.base import Driver
    from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

REPARTITION = "KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
"""End of the name of the internal topic between both subtopologies of WordCount."""
LINES = 4
OWNED = ("topic", "partition", "committed_offset", "last_stable_offset", "high_watermark", "stable_lag", "lag")


def test_streams_groups_are_listed_described_reset_and_deleted(
    drivers: Callable[[str], Driver], kafka_broker: KafkaBroker, name: str, tmp_path: Path
) -> None:
    driver, bootstrap, output = drivers("confluent-kafka"), kafka_broker.bootstrap, f"{name}-out"
    group, repartition = f"count-{name}", f"count-{name}-{REPARTITION}"
    at = ("--bootstrap", bootstrap)
    for topic in (name, output):
        assert odradek("topics", "create", topic, "--partitions", "2", *at).returncode == 0
    application = WordCount(bootstrap, name, output, tmp_path, {"group.protocol": "streams"})
    producer = driver.producer(bootstrap, ProducerOptions(idempotent=True))
    for number in range(LINES):
        producer.send(name, b"leader epoch", partition=number % 2)
    producer.flush()
    await_counts(driver, bootstrap, output, 2 * LINES)
    listed = {"group": group, "type": "streams", "protocol_type": "streams", "state": "Stable", "coordinator": 1}
    assert listed in json_output("groups", "list", "--type", "streams", *at)
    found = json_output("groups", "describe", group, *at)
    assert (found["type"], found["state"], found["assignor_name"]) == ("streams", "Stable", "sticky")
    assert [member["member_epoch"] for member in found["members"]] == [found["group_epoch"]] * 2
    assert read_by(found["members"]) == {(topic, each) for topic in (name, repartition) for each in (0, 1)}
    clients = {member["member_id"]: member["client_id"] for member in found["members"]}
    assert {row["member_id"]: row["client_id"] for row in found["partitions"]} == clients
    assert [(row["topic"], row["partition"]) for row in found["partitions"]] == sorted(read_by(found["members"]))
    refused = odradek("groups", "reset", group, "--topic", name, "--to-earliest", "--execute", *at)
    assert (refused.returncode, "it is Stable; stop its consumers first" in refused.stderr) == (1, True)
    refused = odradek("groups", "delete", group, *at)
    assert (refused.returncode, "stop its consumers first" in refused.stderr) == (1, True)
    application.process.close()
    check_stopped(group, name, *at)


def read_by(members: list[dict[str, Any]]) -> set[tuple[str, int]]:
    """Return the partitions that the members read."""
    return {(topic, each) for member in members for topic, found in member["assignment"].items() for each in found}


def check_stopped(group: str, source: str, *at: str) -> None:
    """Describe, reset and delete a group whose application has stopped. Its last commit has the end of the input."""
    stopped = json_output("groups", "describe", group, *at)
    assert (stopped["state"], stopped["members"]) == ("Empty", [])
    inputs = [row for row in stopped["partitions"] if row["topic"] == source]
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in inputs] == [(0, 2, 0), (1, 2, 0)]
    reset = json_output("groups", "reset", group, "--topic", source, "--to-earliest", "--execute", *at)
    assert [(row["committed_offset"], row["new_offset"]) for row in reset["partitions"]] == [(2, 0), (2, 0)]
    again = json_output("groups", "describe", group, *at)
    assert [row["lag"] for row in again["partitions"] if row["topic"] == source] == [2, 2]
    assert json_output("groups", "delete", group, *at) == {"group": group, "deleted": True}
    missing = odradek("groups", "describe", group, *at)
    assert (missing.returncode, f"group {group} does not exist" in missing.stderr) == (1, True)
