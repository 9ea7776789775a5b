"""Configurations of groups (KIP-848). `GroupSettings` implements `odradek.coordinator.group.ports.GroupConfigs`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import ConfigError, Property, invalid_value
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.image import RESOURCE_GROUP
from odradek.coordinator.group.ports import GroupConfig
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.java_text import trimmed

MINUTE_MS: Final = 60_000
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
GROUP_PROPERTIES: Final[dict[str, Property]] = {
    name: PROPERTIES[f"group.{name}"] for name in (ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
}
"""Each property of a group, with the broker property that is its default."""


def check_group_settings(config: Config, configs: Mapping[str, str]) -> None:
    """Validate configurations for a group. Raise Refusal(INVALID_CONFIG) with Kafka's messages."""
    values: dict[str, int] = {name: getattr(config, prop.attribute) for name, prop in GROUP_PROPERTIES.items()}
    for name, text in configs.items():
        prop = GROUP_PROPERTIES.get(name)
        if prop is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            values[name] = prop.parse(text, name=name)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, invalid_value(name, text, error)) from None
    for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ASSIGNMENT_INTERVAL):
        group, _, rest = name.partition(".")
        low, high = _value(config, f"group.{group}.min.{rest}"), _value(config, f"group.{group}.max.{rest}")
        if name in configs and not low <= values[name] <= high:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive.")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def group_config(config: Config) -> GroupConfig:
    """Return the configuration of the group coordinator, from the node's properties."""
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_commit_timeout_ms=config.offsets_commit_timeout_ms,
        record_batch_bytes_max=config.message_max_bytes,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
        consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
        consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        consumer_min_assignment_interval_ms=config.group_consumer_min_assignment_interval_ms,
        consumer_max_assignment_interval_ms=config.group_consumer_max_assignment_interval_ms,
        consumer_assignors=config.group_consumer_assignors,
        consumer_migration_policy=config.group_consumer_migration_policy,
        consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        authorizes_topics=bool(config.authorizer_class_name),
    )


def contradictions(config: Config) -> Iterator[str]:
    """Yield a message for each contradiction between the group properties of a node."""
    for kind in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        prefix = "group.consumer"
        value, low, high = (
            _value(config, name) for name in (f"{prefix}.{kind}", f"{prefix}.min.{kind}", f"{prefix}.max.{kind}")
        )
        if high < low:
            yield f"{prefix}.max.{kind}: must be greater than or equal to {prefix}.min.{kind}"
        elif value < low:
            yield f"{prefix}.{kind}: must be greater than or equal to {prefix}.min.{kind}"
        elif value > high:
            yield f"{prefix}.{kind}: must be less than or equal to {prefix}.max.{kind}"
    if config.group_consumer_heartbeat_interval_ms >= config.group_consumer_session_timeout_ms:
        yield "group.consumer.heartbeat.interval.ms: must be less than group.consumer.session.timeout.ms"


def _value(config: Config, name: str) -> int:
    value: int = getattr(config, name.replace(".", "_"))
    return value


class GroupSettings:
    """Configurations of groups: those in the metadata image, or else the node's. The node's properties bound them."""

    def __init__(self, config: Config, metadata: MetadataCache, current: Callable[[Property], Any]) -> None:
        """`metadata`: has the configurations of groups (resource type GROUP, 32).

        `current`: `odradek.broker.config.topics.TopicSettings.current`.
        """
        self._broker = group_config(config)
        self._metadata = metadata
        self._current = current

    def broker(self) -> GroupConfig:
        return self._broker

    def session_timeout_ms(self, group_id: str) -> int:
        broker = self._broker
        return self._of(
            group_id,
            SESSION_TIMEOUT,
            broker.consumer_session_timeout_ms,
            broker.consumer_min_session_timeout_ms,
            broker.consumer_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        broker = self._broker
        return self._of(
            group_id,
            HEARTBEAT_INTERVAL,
            broker.consumer_heartbeat_interval_ms,
            broker.consumer_min_heartbeat_interval_ms,
            broker.consumer_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        broker = self._broker
        return self._of(
            group_id,
            ASSIGNMENT_INTERVAL,
            self._current(GROUP_PROPERTIES[ASSIGNMENT_INTERVAL]),
            broker.consumer_min_assignment_interval_ms,
            broker.consumer_max_assignment_interval_ms,
        )

    def _of(self, group_id: str, name: str, default: int, low: int, high: int) -> int:
        """Return the group's value or the default, limited to the present bounds: they may have changed since."""
        text = self._metadata.image.config(RESOURCE_GROUP, group_id).get(name)
        return default if text is None else min(max(int(trimmed(text)), low), high)
