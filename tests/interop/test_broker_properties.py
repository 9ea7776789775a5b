"""All properties of Kafka's brokers: names, types, scopes and defaults, and the refusals of dynamic values."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from odradek.broker.config.brokers import KNOWN, check_broker_settings, property_of
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.property import Scope
from odradek.broker.config.without_effect import WITHOUT_EFFECT
from odradek.broker_interface import OTHER_NAMES
from odradek.protocol.errors import Refusal
from tests.interop.drivers.base import TIMEOUT_S
from tests.interop.test_describe_configs import HIDDEN, OF_AUTHORIZER, OWN, OWN_DEFAULTS
from tests.support.jars import REFERENCE

if TYPE_CHECKING:
    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("java") / "BrokerProperties.java"
PROGRAM_SECONDS_MAX = 60.0
OWN_TYPES = {"listener.security.protocol.map": "LIST", "log.dirs": "STRING"}
"""Types of these properties here. A node has one data directory."""
KAFKAS_SCOPES = {
    Scope.STATIC: "read-only",
    Scope.TOPIC: "cluster-wide",
    Scope.DYNAMIC: "cluster-wide",
    Scope.DYNAMIC_ALONE: "dynamic-only",
    Scope.PER_BROKER: "per-broker",
    Scope.LISTENER: "per-broker",
}
OF_LISTENERS = (
    "listener.name.x.max.connections",
    "listener.name.x.no.such",
    "listener.name.x.num.partitions",
    "listener.name.x.plain.sasl.jaas.config",
    "listener.name.x.ssl.client.auth",
    "listener.name.x.ssl.keystore.location",
)
OTHER_CHECKS = {
    "max.connections.per.ip.overrides": "Kafka does not check the addresses",
    "config.providers": "Odradek resolves no variables",
    "metric.reporters": "a value of the test",
    "principal.builder.class": "the class exists in Kafka",
    "sasl.enabled.mechanisms": "Kafka's default, GSSAPI, is not supported",
    "ssl.cipher.suites": "Kafka does not check the names",
    "ssl.engine.factory.class": "Kafka looks for the class",
}
"""Properties whose value is checked differently."""


class KafkaProperty(NamedTuple):
    name: str
    type: str
    scope: str
    default: str
    value: str
    refusal: str
    refusal_for_all: str


@pytest.fixture(scope="module")
def kafkas() -> dict[str, KafkaProperty]:
    command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{REFERENCE}/*", str(PROGRAM), "no.such"]
    done = subprocess.run(
        [*command, *OF_LISTENERS], capture_output=True, text=True, check=True, timeout=PROGRAM_SECONDS_MAX
    )
    rows = [KafkaProperty(*line.split("\t")) for line in done.stdout.splitlines()]
    assert len(rows) > 300
    return {row.name: row for row in rows}


@pytest.mark.full
def test_each_property_of_kafka_has_a_row_with_its_type_scope_and_default(kafkas: dict[str, KafkaProperty]) -> None:
    of_kafka = {name: row for name, row in kafkas.items() if row.type != "-"}
    missing = [name for name in of_kafka if name not in KNOWN and name not in OTHER_NAMES]
    assert missing == []
    assert [name for name in WITHOUT_EFFECT if name not in of_kafka or name in PROPERTIES] == []
    different = []
    for name, row in of_kafka.items():
        if name in OTHER_NAMES:
            continue
        prop = KNOWN[name]
        default = prop.render(prop.default)
        own = (prop.kind.name, KAFKAS_SCOPES[prop.scope], "null" if default is None else default)
        given = (OWN_TYPES.get(name, row.type), row.scope, row.default)
        own_default = name in OWN_DEFAULTS or row.default == "REQUIRED"
        if own[:2] != given[:2] or (own[2] != given[2] and not own_default):
            different.append((name, own, given))
    assert different == []


@pytest.mark.full
def test_names_that_kafka_does_not_have_are_our_own(kafkas: dict[str, KafkaProperty]) -> None:
    own = {name for name in KNOWN if name not in kafkas and not name.startswith(OWN)}
    assert own == {*OF_AUTHORIZER, "leader.imbalance.per.broker.percentage"} - {*HIDDEN} | {
        name for name in HIDDEN if name not in kafkas
    }


def refusal(broker: str, name: str, value: str) -> str:
    try:
        check_broker_settings(broker, {name: value})
    except Refusal as refused:
        return str(refused.message)
    return ""


@pytest.mark.full
def test_dynamic_values_are_refused_with_the_messages_of_kafka(kafkas: dict[str, KafkaProperty]) -> None:
    different = []
    for name, row in kafkas.items():
        if name in {*OTHER_CHECKS, *OTHER_NAMES}:
            continue
        own = refusal("1", name, row.value), refusal("", name, row.value)
        if own != (row.refusal, row.refusal_for_all):
            different.append((name, row.value, own, (row.refusal, row.refusal_for_all)))
    assert different == []
    assert property_of("no.such") is None


SET = {
    "background.threads": "12",
    "log.cleaner.threads": "2",
    "no.such.property": "1",
    "sasl.kerberos.min.time.before.relogin": "58000",
}
"""Properties without an effect. The last one is set by librdkafka's own tests (0081-admin.c)."""


def rows_after_changes(bootstrap: str) -> dict[str, tuple[Any, ...]]:
    """Set the properties by both APIs, as librdkafka's tests do, and return what the broker describes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [replaced] = admin.alter_configs([ConfigResource(ResourceType.BROKER, "1", set_config={**SET})]).values()
    replaced.result(TIMEOUT_S)
    change = ConfigResource(ResourceType.BROKER, "1")
    change.incremental_configs = [ConfigEntry("background.threads", "13", incremental_operation=AlterConfigOpType.SET)]
    [changed] = admin.incremental_alter_configs([change]).values()
    changed.result(TIMEOUT_S)
    until = time.monotonic() + TIMEOUT_S
    rows = described_rows(admin)
    while rows.get("background.threads", ("",))[0] != "13" and time.monotonic() < until:
        rows = described_rows(admin)
    [emptied] = admin.alter_configs([ConfigResource(ResourceType.BROKER, "1", set_config={})]).values()
    emptied.result(TIMEOUT_S)
    return rows


def described_rows(admin: AdminClient) -> dict[str, tuple[Any, ...]]:
    resource = ConfigResource(ResourceType.BROKER, "1")
    entries: dict[str, Any] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {
        name: (entry.value, entry.source, entry.is_read_only, entry.is_sensitive, entry.is_default)
        for name, entry in entries.items()
        if name in SET
    }


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_properties_without_effect_are_stored_and_described_as_by_kafka(
    odradek_cluster: LocalCluster, kafka_broker: KafkaBroker
) -> None:
    own, kafkas = rows_after_changes(odradek_cluster.bootstrap), rows_after_changes(kafka_broker.bootstrap)
    assert own == kafkas
    assert own["background.threads"][0] == "13"
