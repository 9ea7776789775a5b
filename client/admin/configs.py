"""Configurations of topics, brokers and groups: values with their sources, and changes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

from odradek.client.errors import InvalidArgument, check
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.schema import Message


class ConfigKind(Enum):
    """Kind of a configured resource."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


RESOURCE_TYPES: Final = {ConfigKind.TOPIC: 2, ConfigKind.BROKER: 4, ConfigKind.GROUP: 32}
"""Numbers of Kafka's ConfigResource.Type."""

SOURCES: Final = {
    1: "topic",
    2: "broker, dynamic",
    3: "all brokers, dynamic",
    4: "broker, static",
    5: "default",
    8: "group",
}
"""Descriptions of Kafka's ConfigSource numbers."""
DEFAULT_SOURCE: Final = 5


class ConfigOperation(IntEnum):
    """Operation of a change. APPEND and SUBTRACT concern properties that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One source of a value. Synonyms are in the order of precedence."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A property with its effective value. `value` is None if it is unset or sensitive. `source` is one of SOURCES."""

    name: str
    value: str | None
    source: str
    read_only: bool
    documentation: str | None
    synonyms: list[ConfigSynonym]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one property. `value` is None for DELETE."""

    operation: ConfigOperation
    name: str
    value: str | None = None


async def describe_configs(
    cluster: Cluster, kind: ConfigKind, name: str, *, defaults: bool = False
) -> list[ConfigEntry]:
    """Return the configured properties of a resource by name, and with `defaults` also those with a default value.

    `name` is a topic, a group, a broker's node id, or empty for the dynamic defaults of all brokers. Raise Refused if
    the resource cannot be described.
    """
    resource = DescribeConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=defaults)
    result = (await _request(cluster, kind, name, request)).results[0]
    check(result.error_code, _label(kind, name), result.error_message)
    return [
        ConfigEntry(
            entry.name,
            None if entry.is_sensitive else entry.value,
            _source(entry.config_source),
            entry.read_only,
            entry.documentation,
            [ConfigSynonym(each.name, each.value, _source(each.source)) for each in entry.synonyms],
        )
        for entry in sorted(result.configs, key=lambda entry: str(entry.name))
        if defaults or entry.config_source != DEFAULT_SOURCE
    ]


async def alter_configs(
    cluster: Cluster, kind: ConfigKind, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> None:
    """Apply all changes to a resource. If one change is invalid, apply none, and raise Refused.

    With `validate_only`, validate the changes and apply none.
    """
    configs = [AlterableConfig(name=each.name, config_operation=each.operation, value=each.value) for each in changes]
    resource = AlterConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    result = (await _request(cluster, kind, name, request)).responses[0]
    check(result.error_code, f"{_label(kind, name)} was not changed", result.error_message)


async def _request(cluster: Cluster, kind: ConfigKind, name: str, request: Message) -> Any:
    """Send a request about one broker to that broker, any other request to any broker."""
    if kind is not ConfigKind.BROKER or not name:
        return await cluster.request_any(request)
    if not name.isdecimal():
        raise InvalidArgument(f"broker {name}: expected a node id, or none for the defaults of all brokers")
    return await cluster.request(int(name), request)


def _label(kind: ConfigKind, name: str) -> str:
    return f"{kind.value} {name}".strip()


def _source(number: int) -> str:
    return SOURCES.get(number, str(number))
