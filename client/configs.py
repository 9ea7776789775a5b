"""Settings of topics, brokers and groups: what holds, where it comes from, and other values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.client.client import Cluster, Connection, Unaskable, check
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {"topic": 2, "broker": 4, "group": 32}
SOURCES = {
    1: "topic",
    2: "broker, dynamic",
    3: "all brokers, dynamic",
    4: "broker, static",
    5: "default",
    8: "group",
}
"""DescribeConfigs' ConfigSource in words."""
DEFAULT_SOURCE = 5
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}


def describe(cluster: Cluster, kind: str, name: str, *, everything: bool) -> list[dict[str, Any]]:
    """A row a property that was set somewhere, or with `everything` all that are obeyed. Raises Failed."""
    resource = DescribeConfigsResource(resource_type=KINDS[kind], resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=everything)
    result = asked(cluster, kind, name).call(request).results[0]
    check(result.error_code, f"{kind} {name}".strip(), result.error_message)
    return [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": SOURCES.get(entry.config_source, str(entry.config_source)),
            "read_only": entry.read_only,
            "documentation": entry.documentation,
            "synonyms": [
                {"name": each.name, "value": each.value, "source": SOURCES.get(each.source, str(each.source))}
                for each in entry.synonyms
            ],
        }
        for entry in sorted(result.configs, key=lambda entry: str(entry.name))
        if everything or entry.config_source != DEFAULT_SOURCE
    ]


def alter(cluster: Cluster, kind: str, name: str, changes: Sequence[str], *, validate_only: bool) -> dict[str, Any]:
    """Changes are "set name=value", "delete name", "append name=value", "subtract name=value". Raises Failed."""
    configs = [parsed(change) for change in changes]
    resource = AlterConfigsResource(resource_type=KINDS[kind], resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    result = asked(cluster, kind, name).call(request).responses[0]
    check(result.error_code, f"{kind} {name}".strip() + " was not changed", result.error_message)
    return {"kind": kind, "name": name, "changed": [config.name for config in configs], "validate_only": validate_only}


def parsed(change: str) -> AlterableConfig:
    operation, _, pair = change.partition(" ")
    name, equals, value = pair.partition("=")
    if operation == "delete":
        return AlterableConfig(name=pair, config_operation=OPERATIONS[operation], value=None)
    if not equals:
        raise Unaskable(f"--{operation} {pair}: expected name=value")
    return AlterableConfig(name=name, config_operation=OPERATIONS[operation], value=value)


def asked(cluster: Cluster, kind: str, name: str) -> Connection:
    """A broker answers for itself; anybody answers for the rest. Raises Failed."""
    if kind != "broker" or not name:
        return cluster.any()
    if not name.isdecimal():
        raise Unaskable(f"broker {name}: expected a node id, or none for what was set for all brokers")
    return cluster.node(int(name))
