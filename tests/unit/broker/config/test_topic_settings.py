"""Configurations of topics and brokers: validation, the value that applies, and its source."""

from __future__ import annotations

import pytest

from odradek.broker.config.brokers import NO_CONNECTIONS
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.topics import TopicSettings
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.cluster.metadata.records import ConfigRecord
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import config, image

E = ErrorCode
REPLICAS = (
    "must be the literal '*' or a list of replicas in the following format:"
    " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    "configs", [{"no.such": "1"}, {"retention.ms": "x"}, {"segment.bytes": "-5"}, {"cleanup.policy": "burn"}]
)
def test_invalid_topic_config_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", configs)
    assert caught.value.error is E.INVALID_CONFIG


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


def test_log_config_prefers_topic_configs_to_broker_configs() -> None:
    topic_settings = TopicSettings(config("log.segment.bytes=5000", "log.roll.hours=2", "odradek.validate.records=all"))
    log_config = topic_settings.log_config({"segment.bytes": "6000", "cleanup.policy": "compact"})
    assert (log_config.segment_bytes, log_config.segment_ms) == (6000, 7_200_000)
    assert (log_config.cleanup_policy, log_config.validate_records_all) == (("compact",), True)
    assert topic_settings.log_config({}).segment_bytes == 5000


def test_cluster_default_ranks_between_node_config_and_static_config() -> None:
    topic_settings = TopicSettings(config("log.segment.bytes=5000", "min.insync.replicas=3"))
    delta = MetadataDelta(image())
    for name, value in (("log.segment.bytes", "7000"), ("min.insync.replicas", "2")):
        delta.replay(10, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=name, value=value))
    topic_settings.on_metadata(delta, delta.build())
    assert (topic_settings.log_config({}).segment_bytes, topic_settings.log_config({}).min_insync_replicas) == (7000, 2)
    assert topic_settings.log_config({"segment.bytes": "6000"}).segment_bytes == 6000
    assert [
        (synonym.name, synonym.value, synonym.source) for synonym in topic_settings.synonyms("segment.bytes", {})
    ] == [
        ("log.segment.bytes", "7000", 3),
        ("log.segment.bytes", "5000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    (min_isr,) = (entry for entry in topic_settings.effective("t", {}) if entry.name == "min.insync.replicas")
    assert (min_isr.value, min_isr.source) == ("2", 3)
    node_delta = MetadataDelta(delta.build())
    node_delta.replay(
        11, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="1", name="log.segment.bytes", value="8000")
    )
    topic_settings.on_metadata(node_delta, node_delta.build())
    assert (
        topic_settings.log_config({}).segment_bytes == topic_settings.current(PROPERTIES["log.segment.bytes"]) == 8000
    )
    assert [synonym.source for synonym in topic_settings.synonyms("segment.bytes", {})] == [2, 3, 4, 5]
    # A removed cluster default no longer applies.
    removal_delta = MetadataDelta(node_delta.build())
    removal_delta.replay(
        12, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name="min.insync.replicas", value=None)
    )
    topic_settings.on_metadata(removal_delta, removal_delta.build())
    assert topic_settings.log_config({}).min_insync_replicas == 3


@pytest.mark.parametrize(
    ("configs", "error", "message"),
    [
        ({"node.id": "1"}, E.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        (
            {"log.segment.bytes": "x"},
            E.INVALID_REQUEST,
            "Invalid value x for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            {"log.segment.bytes": "1_000_000"},
            E.INVALID_REQUEST,
            "Invalid value 1_000_000 for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            {"log.cleanup.policy": "none"},
            E.INVALID_REQUEST,
            "Invalid value none for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_invalid_broker_config_is_refused(configs: dict[str, str], error: ErrorCode, message: str) -> None:
    topic_settings = TopicSettings(config())
    topic_settings.validate_broker("1", {"log.segment.bytes": "5000000"})
    with pytest.raises(Refusal) as caught:
        topic_settings.validate_broker("1", configs)
    assert caught.value.error is error
    assert str(caught.value.message).startswith(message)


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
        TopicSettings(config()).validate_broker("1", {name: text})
    assert (caught.value.error, caught.value.message) == (E.INVALID_REQUEST, message)


def test_list_default_returns_the_default_of_list_properties_only() -> None:
    topic_settings = TopicSettings(config())
    assert (
        topic_settings.list_default(2, "cleanup.policy")
        == topic_settings.list_default(4, "log.cleanup.policy")
        == ("delete",)
    )
    assert topic_settings.list_default(2, "retention.ms") is topic_settings.list_default(2, "no.such") is None
