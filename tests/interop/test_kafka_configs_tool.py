"""kafka-configs --describe for each resource type, compared with Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import SETTINGS
from tests.interop.test_describe_configs import OF_AUTHORIZER, OWN, OWN_DEFAULTS

if TYPE_CHECKING:
    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
CONFIGS = "kafka-configs"
KAFKA_HIDES = (
    "group.consumer.regex.refresh.interval.ms",
    "leader.imbalance.per.broker.percentage",
    "log.initial.task.delay.ms",
    "producer.id.expiration.check.interval.ms",
    "unclean.leader.election.interval.ms",
)
"""Internal properties, which Kafka does not describe."""
OTHER_GROUPS = ("errors.deadletterqueue.", "share.", "streams.")
"""Prefixes of properties of share groups and streams groups, which Odradek does not support."""
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def settings(lines: list[str]) -> dict[str, str]:
    """Return value, sensitivity and source by name."""
    assert lines[0] == "exit 0"
    rows = dict(line.split("=", 1) for line in lines[2:])
    assert list(rows) == sorted(rows)
    return rows


def described(pair: ToolComparison, *entity: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the descriptions by Odradek and by Kafka."""
    output = pair.both(CONFIGS, *entity, "--describe", "--all")
    assert output["odradek"][1] == output["kafka"][1]
    return settings(output["odradek"]), settings(output["kafka"])


@pytest.mark.feature("kafka-configs: --describe --all of topics, brokers, groups", client=TOOLS)
def test_description_of_a_topic_equals_that_of_kafka(pair: ToolComparison, name: str) -> None:
    changes = ("--config", "retention.ms=60000", "--config", "cleanup.policy=compact,delete")
    assert pair.same("kafka-topics", "--create", "--topic", name, *changes)[0] == "exit 0"
    odradek, kafkas = described(pair, "--entity-type", "topics", "--entity-name", name)
    assert odradek == kafkas
    pair.same(CONFIGS, "--entity-type", "topics", "--describe", about=name)


@pytest.mark.feature("kafka-configs: --describe --all of topics, brokers, groups", client=TOOLS)
def test_description_of_a_broker_equals_that_of_kafka(pair: ToolComparison) -> None:
    odradek, kafkas = described(pair, "--entity-type", "brokers", "--entity-name", "1")
    common = [setting for setting in odradek if setting in kafkas and setting not in OWN_DEFAULTS]
    assert len(common) > 50
    assert {setting: odradek[setting] for setting in common} == {setting: kafkas[setting] for setting in common}
    assert {setting for setting in odradek.keys() - kafkas.keys() if not setting.startswith(OWN)} == {
        *KAFKA_HIDES,
        *OF_AUTHORIZER,
    }
    assert odradek.keys() >= SETTINGS.keys()
    pair.same(CONFIGS, "--entity-type", "brokers", "--entity-default", "--describe", "--all")
    pair.same(CONFIGS, "--entity-type", "brokers", "--describe")


@pytest.mark.feature("kafka-configs: --describe --all of topics, brokers, groups", client=TOOLS)
def test_description_of_a_group_equals_that_of_kafka(pair: ToolComparison, name: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", name)
    for change in ((), ("--alter", "--add-config", "consumer.session.timeout.ms=50000")):
        if change:
            assert pair.same(CONFIGS, *group, *change)[0] == "exit 0"
        odradek, kafkas = described(pair, *group)
        assert {setting: row for setting, row in kafkas.items() if not setting.startswith(OTHER_GROUPS)} == odradek
        pair.same(CONFIGS, "--entity-type", "groups", "--describe", about=name)
    refused = pair.both(CONFIGS, *group, "--alter", "--add-config", "share.session.timeout.ms=50000")
    assert any("Unknown group config name: share.session.timeout.ms" in line for line in refused["odradek"])


@pytest.mark.feature("kafka-configs: broker-loggers, client-metrics: refused with a reason", client=TOOLS)
def test_resource_types_without_configurations_are_empty_or_refused(pair: ToolComparison, name: str) -> None:
    """Odradek has no log4j loggers, and requests no client metrics (KIP-714)."""
    metrics, logger = ("--entity-type", "client-metrics"), ("--entity-type", "broker-loggers", "--entity-name", "1")
    named = (*metrics, "--entity-name", name)
    pair.same(CONFIGS, *metrics, "--describe", about=name)
    pair.same(CONFIGS, *named, "--describe")
    cases = [
        ((*logger, "--describe"), "odradek.log.level"),
        ((*logger, "--alter", "--add-config", "root=DEBUG"), "odradek.log.level"),
        ((*named, "--alter", "--add-config", "interval.ms=1000"), "collects no client metrics"),
    ]
    for arguments, reason in cases:
        finished = pair.tools.run(CONFIGS, "--bootstrap-server", pair.bootstraps["odradek"], *arguments)
        assert (finished.returncode, reason in finished.stderr) == (1, True), finished
    pair.same(CONFIGS, *named, "--describe")


@pytest.mark.feature("kafka-acls: list, add, remove: refused as without an authorizer", client=TOOLS)
def test_acls_are_refused_without_an_authorizer(pair: ToolComparison, name: str) -> None:
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", name)
    for arguments in (("--list",), ("--add", *rule), ("--remove", "--force", *rule)):
        output = pair.same("kafka-acls", *arguments)
        assert any("No Authorizer is configured" in line for line in output), output
