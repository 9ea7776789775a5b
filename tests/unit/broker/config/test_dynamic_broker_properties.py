"""Dynamic properties of brokers: effect, scopes, custom names, and their description."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from odradek.broker.apis import describe_configs
from odradek.broker.config.brokers import BROKER_PROPERTIES, CUSTOM_PROPERTIES_MAX, check_broker_settings
from odradek.broker.config.doc import render
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.property import Kind, Property, Scope
from odradek.broker.config.sources import with_dynamic_values
from odradek.broker.config.topics import TOPIC_PROPERTIES, TopicSettings
from odradek.broker.network.limits import ConnectionLimits
from odradek.broker.process.clock import SystemClock
from odradek.broker.quota.client_quotas import ClientQuotas
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER, MetadataImage
from odradek.cluster.metadata.records import ConfigRecord
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.broker_context import config, context, image

EFFECTIVE = [name for name, prop in BROKER_PROPERTIES.items() if prop.is_dynamic and not prop.fixed]


def changed(cluster_image: MetadataImage, name: str, value: str, broker: str = "1") -> tuple[MetadataDelta, Any]:
    delta = MetadataDelta(cluster_image)
    delta.replay(10, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=broker, name=name, value=value))
    return delta, delta.build()


def other_value(prop: Property) -> str:
    """Return a valid value that is not the default."""
    if prop.choices:
        return next(choice for choice in prop.choices if choice != prop.render(prop.default))
    if prop.kind is Kind.BOOLEAN:
        return "false" if prop.default else "true"
    if prop.kind is Kind.STRING:
        return "10.0.0.1:3"
    low = 0.25 if prop.high == 1 else max(prop.set_low or prop.low or 1, 1)
    return prop.render(low if low != prop.default else low + 1) or ""


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize("name", EFFECTIVE)
def test_each_dynamic_property_takes_effect_for_one_broker_and_for_all(name: str, broker: str) -> None:
    prop = BROKER_PROPERTIES[name]
    value = other_value(prop)
    check_broker_settings(broker, {name: value})
    settings = TopicSettings(config())
    before = settings.log_config({})
    settings.on_metadata(*changed(image(), name, value, broker))
    assert prop.render(settings.current(prop)) == prop.render(prop.parse(value)) != prop.render(prop.default)
    if prop.topic_name is not None:
        assert settings.text(prop.topic_name, {}) == prop.render(prop.parse(value))
        assert settings.log_config({}) != before
        assert TOPIC_PROPERTIES[prop.topic_name] is prop


def test_connections_of_one_address_have_their_own_dynamic_maximum() -> None:
    settings = TopicSettings(config("max.connections.per.ip=1"))
    limits = ConnectionLimits(settings, ClientQuotas(config(), SystemClock()))
    settings.on_metadata(*changed(image(), "max.connections.per.ip.overrides", "10.0.0.1:2, ::1:0"))
    admitted = [limits.admit(address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "::1", "10.0.0.2")]
    assert admitted == [None, None, "max.connections.per.ip", "max.connections.per.ip", None]


@pytest.mark.parametrize("text", ["host:1", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:-1"])
def test_maximum_of_an_address_needs_an_address_and_a_number(text: str) -> None:
    with pytest.raises(Refusal, match=r"max\.connections\.per\.ip\.overrides: .* is not of the form address:number"):
        check_broker_settings("1", {"max.connections.per.ip.overrides": text})


@pytest.mark.parametrize(
    ("broker", "name", "message"),
    [
        ("1", "num.partitions", "Cannot update these configs dynamically: [num.partitions]"),
        ("1", "queued.max.requests", "Cannot update these configs dynamically"),
        ("", "listeners", "Cannot update these configs at default cluster level, broker id must be specified"),
        ("", "sasl.kerberos.kinit.cmd", "Cannot update these configs at default cluster level"),
        ("", "listener.name.x.custom", "Cannot update these configs at default cluster level"),
        ("1", "ssl.keystore.location", "These security configs can be dynamically updated only per-listener"),
        ("1", "num.io.threads", "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        ("1", "listener.name.x.num.io.threads", "Invalid value x for configuration num.io.threads"),
        ("1", "principal.builder.class", "No classes of Java are loaded."),
    ],
)
def test_dynamic_property_is_refused_in_kafkas_words(broker: str, name: str, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_broker_settings(broker, {name: "x"})
    assert caught.value.error is ErrorCode.INVALID_REQUEST
    assert str(caught.value.message).startswith(message)


@pytest.mark.parametrize("name", ["sasl.jaas.config", "listener.name.x.ssl.keystore.password"])
def test_empty_password_is_accepted_as_with_kafka(name: str) -> None:
    check_broker_settings("1", {name: ""})


def test_custom_properties_are_accepted_up_to_their_maximum() -> None:
    names = [f"custom.{number}" for number in range(CUSTOM_PROPERTIES_MAX + 1)]
    check_broker_settings("", dict.fromkeys(names[1:], "1"))
    with pytest.raises(Refusal) as caught:
        check_broker_settings("", dict.fromkeys(names, "1"))
    assert caught.value.error is ErrorCode.POLICY_VIOLATION


def described(assignments: list[str], dynamic: dict[str, str]) -> dict[str, Any]:
    """Return the description of broker 1 with properties in its file and dynamic ones."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configuration_keys=None)],
        include_synonyms=True,
    )
    delta = MetadataDelta(image())
    for name, value in dynamic.items():
        delta.replay(10, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="1", name=name, value=value))
    served = context(4, delta.build(), *assignments)
    served.node.topic_settings.on_metadata(delta, served.node.metadata.image)
    return {entry.name: entry for entry in describe_configs.handle(served, request).results[0].configs}


def test_properties_without_effect_and_custom_ones_are_described_if_they_are_set() -> None:
    entries = described(["num.io.threads=4", "background.threads=5"], {"background.threads": "07", "custom": "x"})
    threads = entries["background.threads"]
    assert (threads.value, threads.config_source, threads.read_only) == ("7", 2, False)
    assert [(each.value, each.source) for each in threads.synonyms] == [("07", 2), ("5", 4), ("10", 5)]
    assert (entries["num.io.threads"].value, entries["num.io.threads"].config_source) == ("4", 4)
    custom = entries["custom"]
    assert (custom.value, custom.is_sensitive, custom.read_only, custom.config_source) == (None, True, True, 2)
    assert (custom.config_type, threads.config_type) == (0, Kind.INT)
    assert "num.network.threads" not in entries


def test_tls_setting_of_all_listeners_yields_to_that_of_one_listener() -> None:
    own = config("listeners=A://:1,B://:2", "inter.broker.listener.name=A", "listener.name.a.ssl.client.auth=none")
    after = with_dynamic_values(own, {"ssl.client.auth": "required", "ssl.protocol": "TLSv1.2"})
    assert [after.on_listener(name).ssl_client_auth for name in ("A", "B")] == ["none", "required"]
    assert after.on_listener("A").ssl_protocol == "TLSv1.2"
    assert BROKER_PROPERTIES["ssl.client.auth"].scope is Scope.LISTENER


def test_dynamic_values_without_effect_are_logged_until_they_change() -> None:
    settings = TopicSettings(config("node.id=1"))
    with structlog.testing.capture_logs() as logs:
        first, after = changed(image(), "num.io.threads", "2")
        settings.on_metadata(first, after)
        second, after = changed(after, "log.segment.bytes", "2000000")
        settings.on_metadata(second, after)
        settings.on_metadata(*changed(after, "custom", "x", ""))
    assert [entry["names"] for entry in logs] == ["num.io.threads", "custom, num.io.threads"]


def test_properties_whose_dynamic_values_are_only_stored_have_the_reason() -> None:
    stored = {name for name, prop in PROPERTIES.items() if prop.scope is Scope.PER_BROKER}
    assert stored == {name for name, prop in PROPERTIES.items() if prop.stored_because}
    page = render()
    for name in stored:
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert row.endswith(f"A dynamic value is only stored: {PROPERTIES[name].stored_because} |")
