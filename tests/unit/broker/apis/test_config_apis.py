"""Settings of groups, brokers and topics through the APIs: who may change them, what is refused, where values come from."""

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
    ("given", "message"),
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
def test_settings_of_groups_are_checked(given: dict[str, str], message: str) -> None:
    made = TopicSettings(config())
    made.validate_group({"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "0"})
    with pytest.raises(Refusal) as caught:
        made.validate_group(given)
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)


def test_a_groups_session_has_to_outlast_a_heartbeat() -> None:
    made = TopicSettings(
        config("group.consumer.min.session.timeout.ms=1000", "group.consumer.min.heartbeat.interval.ms=1")
    )
    with pytest.raises(Refusal) as caught:
        made.validate_group({"consumer.session.timeout.ms": "5000"})
    assert caught.value.message == "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"


def test_a_groups_setting_says_where_it_comes_from() -> None:
    seen = image()
    seen = replace(seen, configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=None)],
        include_synonyms=True,
    )
    made = context(4, seen, "group.consumer.heartbeat.interval.ms=6000")
    entries = {entry.name: entry for entry in describe_configs.handle(made, request).results[0].configs}
    session, heartbeat = entries["consumer.session.timeout.ms"], entries["consumer.heartbeat.interval.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (heartbeat.value, heartbeat.config_source) == ("6000", 4)


def test_the_default_of_all_groups_may_change_while_a_broker_runs() -> None:
    values = {"group.consumer.assignment.interval.ms": 2_000}
    seen: Any = SimpleNamespace(
        image=replace(image(), configs={(32, "g"): {"consumer.assignment.interval.ms": "99999"}})
    )
    made = GroupSettings(config(), seen, lambda prop: values[prop.name])
    assert made.assignment_interval_ms("other") == 2_000
    values["group.consumer.assignment.interval.ms"] = 3_000
    assert made.assignment_interval_ms("other") == 3_000
    assert made.assignment_interval_ms("g") == 15_000, "within the bounds of now"


def listed(version: int, *kinds: int, **options: Any) -> list[tuple[int, str]]:
    seen = replace(
        image([topic("t", 1, [1])], [broker(1), broker(2, fenced=True)]),
        configs={(32, "g"): {"consumer.session.timeout.ms": "50000"}, (2, "t"): {}},
    )
    asked = ListConfigResourcesRequest(resource_types=list(kinds))
    response = list_config_resources.handle(context(version, seen, **options), asked)
    assert not response.error_code
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def test_resources_that_may_have_settings_are_listed() -> None:
    assert listed(1) == [(32, "g"), (8, "1"), (4, "1"), (2, "t")]
    assert listed(1, 2, 32) == [(32, "g"), (2, "t")]
    assert listed(0) == listed(1, 16) == []
    with pytest.raises(Refusal) as caught:
        listed(1, 77)
    assert caught.value.error is E.UNSUPPORTED_VERSION
    with pytest.raises(Refusal) as caught:
        listed(1, authorizer=Deny((AclOperation.DESCRIBE_CONFIGS, "kafka-cluster")))
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED


class Altering(FakeController):
    """Grants every change."""

    async def alter_configs(self, resources: Any, **options: Any) -> tuple[ConfigResult, ...]:
        self.calls.append((tuple(resources), options))
        return tuple(ConfigResult(each.kind, each.name) for each in resources)


DENIED = Deny(
    (AclOperation.ALTER_CONFIGS, "t"), (AclOperation.ALTER_CONFIGS, "g"), (AclOperation.ALTER_CONFIGS, "kafka-cluster")
)


async def test_both_ways_to_alter_settings_reach_the_controller() -> None:
    controller = Altering()
    old = AlterConfigsRequest(
        [AlterConfigsResource(2, "t", [AlterableConfig("a", "1"), AlterableConfig("b", None)])], True
    )
    response = await response_of(alter_configs.handle(context(2, image(), controller=controller), old))
    assert [(each.error_code, each.resource_type, each.resource_name) for each in response.responses] == [(0, 2, "t")]
    new = IncrementalAlterConfigsRequest(
        [
            IncrementalResource(4, "", [Incremental("a", 1, None)]),
            IncrementalResource(32, "g", [Incremental("a", 9, "x")]),
        ]
    )
    response = await response_of(incremental_alter_configs.handle(context(1, image(), controller=controller), new))
    assert [(each.error_code, each.error_message) for each in response.responses] == [
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


async def test_settings_are_changed_by_those_who_may() -> None:
    asked = AlterConfigsRequest([AlterConfigsResource(kind, name) for kind, name in ((2, "t"), (32, "g"), (4, "1"))])
    response = await response_of(
        alter_configs.handle(context(2, image(), controller=Altering(), authorizer=DENIED), asked)
    )
    assert [each.error_code for each in response.responses] == [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ]


def test_the_refresh_of_regular_expressions_can_be_set_within_kafkas_bounds() -> None:
    name = "group.consumer.regex.refresh.interval.ms"
    assert group_config(config()).consumer_regex_refresh_interval_ms == 600_000
    assert group_config(config(f"{name}=10000")).consumer_regex_refresh_interval_ms == 10_000
    with pytest.raises(ConfigError, match="9999 is below the smallest allowed value, 10000"):
        config(f"{name}=9999")


@pytest.mark.parametrize(("kind", "why"), [(8, "odradek.log.level"), (16, "collects no client metrics")])
async def test_kinds_that_have_no_settings_here_are_refused_saying_why(kind: int, why: str) -> None:
    """Loggers of brokers, metrics of clients."""
    controller = Altering()
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, "1", None)])
    described = describe_configs.handle(context(4, image()), asked).results[0]
    change = IncrementalAlterConfigsRequest([IncrementalResource(kind, "1", [Incremental("a", 0, "1")])])
    [altered] = (
        await response_of(incremental_alter_configs.handle(context(1, image(), controller=controller), change))
    ).responses
    for told in (described, altered):
        assert (told.error_code, why in str(told.error_message)) == (E.INVALID_REQUEST, True)
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
def test_what_is_set_for_a_topic_is_judged_as_in_kafka(name: str, text: str, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", {name: text})
    shown = f"[{', '.join(text.split(','))}]" if reason is REPLICAS else text
    words = f"{name} {reason}" if reason is REPLICAS else reason
    assert caught.value.message == f"Invalid value {shown} for configuration {name}: {words}"


@pytest.mark.parametrize(
    "given",
    [
        {"retention.bytes": "-2"},
        {"cleanup.policy": ""},
        {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "0:1, 12:3"},
        {"leader.replication.throttled.replicas": ""},
    ],
)
def test_what_may_be_set_for_a_topic(given: dict[str, str]) -> None:
    TopicSettings(config()).validate("t", given)


def test_a_topic_without_a_cleanup_policy_keeps_everything() -> None:
    settings = TopicSettings(config()).log_config({"cleanup.policy": ""})
    assert (settings.deletes, settings.compacted) == (False, False)


def test_logs_of_coordinators_may_have_small_segments() -> None:
    """Their size is a property of nodes, which has no such bound."""
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
def test_what_is_set_for_brokers_is_judged_as_in_kafka(name: str, text: str, message: str) -> None:
    """A broker that takes no connection could not be told anything else."""
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate_broker({name: text})
    assert (caught.value.error, caught.value.message) == (E.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", " +5 ", "5"),
        ("unclean.leader.election.enable", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("cleanup.policy", "delete, compact,delete", "delete,compact"),
    ],
)
def test_a_value_is_shown_as_it_is_understood(name: str, text: str, shown: str) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])],
        include_synonyms=True,
    )
    seen = image([topic("t", 1, [1])], configs={"t": {name: text}})
    [entry] = describe_configs.handle(context(4, seen), request).results[0].configs
    assert (entry.value, entry.synonyms[0].value) == (shown, shown)
