"""Configurations of groups: validation, and the value that applies."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.config.groups import GroupSettings, group_config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.topics import TopicSettings
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import config, image

E = ErrorCode


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
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            {"consumer.heartbeat.interval.ms": "15001"},
            "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
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


def test_regex_refresh_interval_has_kafkas_minimum() -> None:
    name = "group.consumer.regex.refresh.interval.ms"
    assert group_config(config()).consumer_regex_refresh_interval_ms == 600_000
    assert group_config(config(f"{name}=10000")).consumer_regex_refresh_interval_ms == 10_000
    with pytest.raises(ConfigError, match="9999 is below the smallest allowed value, 10000"):
        config(f"{name}=9999")
