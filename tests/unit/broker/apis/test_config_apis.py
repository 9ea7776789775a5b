"""Configs of groups, brokers and topics: permissions, refusals, and the sources of values."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from odradek.broker.config.groups import GroupSettings, group_config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.topics import NO_CONNECTIONS, TopicSettings
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation, ConfigResult
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import AlterableConfig as Incremental
from odradek.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from odradek.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.broker_context import Deny, FakeController, broker, config, context, image, response_of, topic

E = ErrorCode
REPLICAS = (
    "must be the literal '*' or a list of replicas in the following format:"
    " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        (
            {"consumer.session.timeout.ms": "x"},
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        (
            {"consumer.session.timeout.ms": "0"},
            "Invalid value 0 for configuration consumer.session.timeout.ms: Value must be at least 1",
        ),
        (
            {"consumer.session.timeout.ms": "44999"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "15001"},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
    ],
)
def test_invalid_group_config_is_refused_with_kafkas_message(configs: dict[str, str], message: str) -> None:
    topic_settings = TopicSettings(config())
    topic_settings.validate_group({"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "0"})
    with pytest.raises(Refusal) as caught:
        topic_settings.validate_group(configs)
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)


def test_session_timeout_of_a_group_must_exceed_its_heartbeat_interval() -> None:
    topic_settings = TopicSettings(
        config("group.consumer.min.session.timeout.ms=1000", "group.consumer.min.heartbeat.interval.ms=1")
    )
    with pytest.raises(Refusal) as caught:
        topic_settings.validate_group({"consumer.session.timeout.ms": "5000"})
    assert caught.value.message == "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"


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


def test_dynamic_broker_default_applies_to_groups_without_own_config() -> None:
    values = {"group.consumer.assignment.interval.ms": 2_000}
    metadata_cache: Any = SimpleNamespace(
        image=replace(image(), configs={(32, "g"): {"consumer.assignment.interval.ms": "99999"}})
    )
    group_settings = GroupSettings(config(), metadata_cache, lambda prop: values[prop.name])
    assert group_settings.assignment_interval_ms("other") == 2_000
    values["group.consumer.assignment.interval.ms"] = 3_000
    assert group_settings.assignment_interval_ms("other") == 3_000
    assert group_settings.assignment_interval_ms("g") == 15_000, (
        "the value of the group is limited by the current maximum of the broker"
    )


def list_resources(version: int, *kinds: int, **options: Any) -> list[tuple[int, str]]:
    cluster_image = replace(
        image([topic("t", 1, [1])], [broker(1), broker(2, fenced=True)]),
        configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}, (2, "t"): {}},
    )
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = list_config_resources.handle(context(version, cluster_image, **options), request)
    assert not response.error_code
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


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


def test_regex_refresh_interval_has_kafkas_minimum() -> None:
    name = "group.consumer.regex.refresh.interval.ms"
    assert group_config(config()).consumer_regex_refresh_interval_ms == 600_000
    assert group_config(config(f"{name}=10000")).consumer_regex_refresh_interval_ms == 10_000
    with pytest.raises(ConfigError, match="9999 is below the smallest allowed value, 10000"):
        config(f"{name}=9999")


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
    ("name", "text", "reason"),
    [
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", " ", "Not a number of type LONG"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("segment.bytes", "1", "Value must be at least 1048576"),
        ("follower.replication.throttled.replicas", "none", REPLICAS),
        ("leader.replication.throttled.replicas", "0:1,*", REPLICAS),
        ("leader.replication.throttled.replicas", "0:12:3", REPLICAS),
    ],
)
def test_invalid_topic_config_is_refused_with_kafkas_message(name: str, text: str, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", {name: text})
    rendered = f"[{', '.join(text.split(','))}]" if reason is REPLICAS else text
    expected_reason = f"{name} {reason}" if reason is REPLICAS else reason
    assert caught.value.message == f"Invalid value {rendered} for configuration {name}: {expected_reason}"


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.bytes": "-2"},
        {"cleanup.policy": ""},
        {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "0:1, 12:3"},
        {"leader.replication.throttled.replicas": ""},
    ],
)
def test_valid_topic_config_is_accepted(configs: dict[str, str]) -> None:
    TopicSettings(config()).validate("t", configs)


def test_topic_with_empty_cleanup_policy_neither_deletes_nor_compacts() -> None:
    settings = TopicSettings(config()).log_config({"cleanup.policy": ""})
    assert (settings.deletes, settings.compacted) == (False, False)


def test_offsets_topic_accepts_segments_below_kafkas_minimum() -> None:
    """Their segment size is a node property, which has no such minimum."""
    TopicSettings(config()).validate("__consumer_offsets", {"segment.bytes": "4000"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "log.segment.bytes",
            "1048575",
            "Invalid value 1048575 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ("log.retention.ms", "", "Invalid value  for configuration log.retention.ms: Not a number of type LONG"),
        ("max.connections", "0", NO_CONNECTIONS),
    ],
)
def test_invalid_broker_config_is_refused_with_kafkas_message(name: str, text: str, message: str) -> None:
    """max.connections=0 is refused: no later request could undo it."""
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate_broker({name: text})
    assert (caught.value.error, caught.value.message) == (E.INVALID_REQUEST, message)


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
