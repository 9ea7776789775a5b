"""Configs of groups, brokers and topics: permissions, refusals, and the sources of values."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from odradek.broker.config.topics import TOPIC_PROPERTIES
from odradek.broker.requests import slices
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation, ConfigResult
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import AlterableConfig as Incremental
from odradek.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from odradek.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.support.broker_context import (
    Deny,
    FakeController,
    broker,
    context,
    image,
    response_of,
    services_of,
    topic,
)
from tests.support.running_node import running

E = ErrorCode


def describe(
    resource_type: int,
    name: str,
    *assignments: str,
    configs: dict[str, str] | None = None,
    keys: list[str] | None = None,
) -> Any:
    cluster_image = image([topic("t", 1, [1])], configs={"t": configs or {}})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)],
        include_synonyms=True,
        include_documentation=True,
    )
    return describe_configs.handle(context(4, cluster_image, *assignments), request).results[0]


def test_described_topic_config_has_its_source_and_synonyms() -> None:
    result = describe(
        2, "t", "log.retention.minutes=2", "log.retention.ms=9", configs={"retention.ms": "5"}, keys=["retention.ms"]
    )
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source, entry.config_type) == ("retention.ms", "5", 1, 5)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "9", 4),
        ("log.retention.minutes", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert entry.documentation


@pytest.mark.parametrize(
    ("assignments", "value", "source"),
    [
        ((), "604800000", 5),
        (("log.retention.minutes=2",), "120000", 5),
        (("log.retention.minutes=2", "log.retention.ms=9"), "9", 4),
        (("log.retention.hours=-1",), "-1", 5),
    ],
)
def test_retention_of_the_finest_configured_unit_applies(assignments: tuple[str, ...], value: str, source: int) -> None:
    (entry,) = describe(2, "t", *assignments, keys=["retention.ms"]).configs
    assert (entry.value, entry.config_source) == (value, source)


def test_describe_configs_lists_every_property_of_topics_and_brokers() -> None:
    assert [entry.name for entry in describe(2, "t").configs] == list(TOPIC_PROPERTIES)
    entries = {entry.name: entry for entry in describe(4, "1", "num.partitions=3").configs}
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("3", 4)
    # As in Kafka; tests/interop/test_describe_configs.py compares both.
    read_only = [entries[name].read_only for name in ("node.id", "num.partitions", "message.max.bytes")]
    assert read_only == [True, True, False]
    assert describe(4, "").configs == []
    assert describe(2, "t", keys=[]).configs == describe(2, "t").configs


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "missing", E.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", E.INVALID_TOPIC_EXCEPTION),
        (4, "2", E.INVALID_REQUEST),
        (8, "1", E.INVALID_REQUEST),
    ],
)
def test_describe_configs_of_an_invalid_resource_is_an_error(kind: int, name: str, error: ErrorCode) -> None:
    refused = describe(kind, name)
    assert refused.error_code == error
    assert (refused.error_message or "").startswith("Topic name is invalid: 'a b' ") is (name == "a b")


def test_described_group_config_has_its_source_and_synonyms() -> None:
    cluster_image = replace(image(), configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=None)],
        include_synonyms=True,
    )
    request_context = context(4, cluster_image, "group.consumer.heartbeat.interval.ms=6000")
    entries = {entry.name: entry for entry in describe_configs.handle(request_context, request).results[0].configs}
    session, heartbeat = entries["consumer.session.timeout.ms"], entries["consumer.heartbeat.interval.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (heartbeat.value, heartbeat.config_source) == ("6000", 4)


def list_resources(version: int, *kinds: int, **options: Any) -> list[tuple[int, str]]:
    cluster_image = replace(
        image([topic("t", 1, [1])], [broker(1), broker(2, fenced=True)]),
        configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}, (2, "t"): {}},
    )
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = list_config_resources.handle(context(version, cluster_image, **options), request)
    assert isinstance(response, ListConfigResourcesResponse)
    assert not response.error_code
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


async def test_many_config_resources_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_config_resources, "ELEMENTS_PER_PART", 3)
    monkeypatch.setattr(slices, "ELEMENTS_PER_PART", 3)
    parts: list[int] = []
    respond = list_config_resources._response

    def counted(resources: Sequence[tuple[str, int]]) -> ListConfigResourcesResponse:
        parts.append(len(resources))
        return respond(resources)

    monkeypatch.setattr(list_config_resources, "_response", counted)
    names = [f"t{number}" for number in range(10)]
    cluster_image = image([topic(name, number, [1]) for number, name in enumerate(names, 1)], [broker(1)])
    request = ListConfigResourcesRequest(resource_types=[2])
    response = await response_of(list_config_resources.handle(context(1, cluster_image), request))
    assert [resource.resource_name for resource in response.config_resources] == names
    assert parts == [3, 3, 3, 1]


def test_list_config_resources_lists_resources_of_the_requested_types() -> None:
    assert list_resources(1) == [(32, "g"), (8, "1"), (4, "1"), (2, "t")]
    assert list_resources(1, 2, 32) == [(32, "g"), (2, "t")]
    assert list_resources(0) == list_resources(1, 16) == []
    with pytest.raises(Refusal) as caught:
        list_resources(1, 77)
    assert caught.value.error is E.UNSUPPORTED_VERSION
    with pytest.raises(Refusal) as caught:
        list_resources(1, authorizer=Deny((AclOperation.DESCRIBE_CONFIGS, "kafka-cluster")))
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED


class AlteringController(FakeController):
    """Fake controller that accepts every config change."""

    async def alter_configs(self, resources: Any, **options: Any) -> tuple[ConfigResult, ...]:
        self.calls.append((tuple(resources), options))
        return tuple(ConfigResult(resource.kind, resource.name) for resource in resources)


DENIED = Deny(
    (AclOperation.ALTER_CONFIGS, "t"), (AclOperation.ALTER_CONFIGS, "g"), (AclOperation.ALTER_CONFIGS, "kafka-cluster")
)


async def test_alter_configs_and_incremental_alter_configs_reach_the_controller() -> None:
    controller = AlteringController()
    alter_request = AlterConfigsRequest(
        [AlterConfigsResource(2, "t", [AlterableConfig("a", "1"), AlterableConfig("b", None)])], True
    )
    response = await response_of(alter_configs.handle(context(2, image(), controller=controller), alter_request))
    assert [(result.error_code, result.resource_type, result.resource_name) for result in response.responses] == [
        (0, 2, "t")
    ]
    incremental_request = IncrementalAlterConfigsRequest(
        [
            IncrementalResource(4, "", [Incremental("a", 1, None)]),
            IncrementalResource(32, "g", [Incremental("a", 9, "x")]),
        ]
    )
    response = await response_of(
        incremental_alter_configs.handle(context(1, image(), controller=controller), incremental_request)
    )
    assert [(result.error_code, result.error_message) for result in response.responses] == [
        (0, None),
        (E.INVALID_REQUEST, "Unknown operations type 9"),
    ]
    assert controller.calls == [
        (
            (ConfigChange(2, "t", (("a", ConfigOperation.SET, "1"), ("b", ConfigOperation.SET, None)), replaces=True),),
            {"validate_only": True},
        ),
        ((ConfigChange(4, "", (("a", ConfigOperation.DELETE, None),)),), {"validate_only": False}),
    ]


async def test_alter_configs_without_permission_is_refused_per_resource() -> None:
    request = AlterConfigsRequest([AlterConfigsResource(kind, name) for kind, name in ((2, "t"), (32, "g"), (4, "1"))])
    response = await response_of(
        alter_configs.handle(context(2, image(), controller=AlteringController(), authorizer=DENIED), request)
    )
    assert [result.error_code for result in response.responses] == [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ]


LOCATION = "listener.name.ssl.ssl.keystore.location"


@pytest.mark.parametrize(
    ("kind", "name", "key", "denied", "checked"),
    [
        (4, "1", LOCATION, (), [{LOCATION: "/a"}]),
        (4, "1", LOCATION, ("kafka-cluster",), []),
        (4, "2", LOCATION, (), []),
        (4, "1", "log.cleaner.threads", (), []),
        (2, "t", "retention.ms", ("kafka-cluster",), []),
    ],
)
async def test_certificates_of_this_broker_are_checked_and_the_controller_alone_audits(
    kind: int, name: str, key: str, denied: tuple[str, ...], checked: list[dict[str, str]]
) -> None:
    """A client that may change the configuration of a topic, but not of the cluster, is not logged as denied."""
    texts: list[dict[str, str]] = []

    async def validate(given: dict[str, str]) -> None:
        texts.append(given)

    authorizer = Deny(*((AclOperation.ALTER_CONFIGS, resource) for resource in denied))
    request_context = context(1, image(), authorizer=authorizer)
    services_of(request_context).certificates = SimpleNamespace(validate=validate)
    audit: Any = SimpleNamespace(denied=pytest.fail, changed=pytest.fail)
    request_context.audit = audit
    request = IncrementalAlterConfigsRequest([IncrementalResource(kind, name, [Incremental(key, 0, "/a")])])
    check = incremental_alter_configs.check(request_context, request)
    if check is not None:
        await check
    assert texts == checked


@pytest.mark.parametrize(("kind", "reason"), [(8, "odradek.log.level"), (16, "collects no client metrics")])
async def test_resource_type_without_configs_is_refused_with_a_reason(kind: int, reason: str) -> None:
    """Type 8 is a broker logger, type 16 a client metrics subscription."""
    controller = AlteringController()
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, "1", None)])
    described = describe_configs.handle(context(4, image()), request).results[0]
    alter_request = IncrementalAlterConfigsRequest([IncrementalResource(kind, "1", [Incremental("a", 0, "1")])])
    [altered] = (
        await response_of(incremental_alter_configs.handle(context(1, image(), controller=controller), alter_request))
    ).responses
    for result in (described, altered):
        assert (result.error_code, reason in str(result.error_message)) == (E.INVALID_REQUEST, True)
    assert controller.calls == [((), {"validate_only": False})]


@pytest.mark.parametrize(
    ("name", "text", "rendered"),
    [
        ("retention.ms", " +5 ", "5"),
        ("unclean.leader.election.enable", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("cleanup.policy", "delete, compact,delete", "delete,compact"),
    ],
)
def test_described_config_value_is_normalized(name: str, text: str, rendered: str) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])],
        include_synonyms=True,
    )
    cluster_image = image([topic("t", 1, [1])], configs={"t": {name: text}})
    [entry] = describe_configs.handle(context(4, cluster_image), request).results[0].configs
    assert (entry.value, entry.synonyms[0].value) == (rendered, rendered)


async def test_configs_of_many_resources_are_described_in_small_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 4 kB that names one broker 400 times must not build its result in one turn of the event loop."""
    resources, described = 400, [0]
    original = describe_configs._entry

    def counted(*arguments: Any) -> Any:
        described[-1] += 1
        return original(*arguments)

    monkeypatch.setattr(describe_configs, "_entry", counted)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="1")] * resources
    )
    async with running(tmp_path) as rig:
        call = asyncio.ensure_future(rig.call(request, 4))
        while not call.done():
            described.append(0)
            await asyncio.sleep(0)
        results = (await call).results
    assert len(results) == resources
    assert sum(described) > 100 * resources
    assert max(described) <= ELEMENTS_PER_PART
