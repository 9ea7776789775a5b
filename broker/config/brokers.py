"""Dynamic configurations of brokers: their properties by name, and the checks of values to be set, as in Kafka.

A name that is no property is a custom property: it is stored, and its value is never described.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.broker.config.connections import OVERRIDES, parse_overrides
from odradek.broker.config.properties import (
    PROPERTIES,
    PROPERTY_OF_LISTENER,
    WITH_PREFIX_ALONE,
    Config,
    dynamic_of_listener,
)
from odradek.broker.config.property import ConfigError, Property, Scope, invalid_value
from odradek.broker.config.without_effect import WITHOUT_EFFECT
from odradek.protocol.errors import ErrorCode, Refusal

BROKER_PROPERTIES: Final = {name: prop for name, prop in PROPERTIES.items() if prop.scope is not Scope.TOPIC_ALONE}
"""Each property of a broker that has an effect, by name."""
KNOWN: Final = WITHOUT_EFFECT | BROKER_PROPERTIES
"""Each property of a broker by name."""
CUSTOM_PROPERTIES_MAX: Final = 100
"""Maximum custom properties per broker, and for all brokers. The metadata of each node has them.

Kafka has no limit. Its own plug-ins need a few.
"""
MAX_CONNECTIONS: Final = "max.connections"
NO_CONNECTIONS: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0"
    " for configuration Invalid dynamic configuration"
)
"""Kafka's error message. A broker without connections could not receive another value."""
CLUSTER_WIDE_OF_LISTENERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Properties of one listener that can be set for all brokers."""


def property_of(name: str) -> Property | None:
    """Return the property that `name` sets for a broker or for one listener of it; None for a custom property."""
    found = PROPERTY_OF_LISTENER.fullmatch(name)
    return KNOWN.get(name if found is None else found["property"])


def has_effect(name: str) -> bool:
    """Return True if a broker obeys a dynamic value of this name."""
    prop = BROKER_PROPERTIES.get(name)
    return dynamic_of_listener(name) is not None or (prop is not None and prop.scope is not Scope.PER_BROKER)


def static_value(config: Config, prop: Property) -> Any:
    """Return the value of a property in the sources of a node's start, or its default."""
    if prop.name not in WITHOUT_EFFECT:
        return getattr(config, prop.attribute)
    text = config.without_effect.get(prop.name)
    return prop.default if text is None else prop.parse(text)


def check_broker_settings(broker: str, configs: Mapping[str, str]) -> None:
    """Validate configurations that are to be set for a broker, or for all brokers if its name is empty.

    Raise Refusal(INVALID_REQUEST) for an invalid value, for a property that is not dynamic, and for one of single
    brokers if no broker is named. Raise Refusal(POLICY_VIOLATION) for too many custom properties.
    """
    _refuse("Cannot update these configs dynamically", filter(_is_read_only, configs))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (name for name in configs if name.startswith(WITH_PREFIX_ALONE) and name in KNOWN),
    )
    for name, text in configs.items():
        _check_value(name, text)
    if not broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            filter(_is_per_broker, configs),
        )
    custom = sum(property_of(name) is None for name in configs)
    if custom > CUSTOM_PROPERTIES_MAX:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"At most {CUSTOM_PROPERTIES_MAX} custom properties are stored, not {custom}; delete some of them.",
        )


def _refuse(reason: str, names: Iterable[str]) -> None:
    refused = ", ".join(names)
    if refused:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{reason}: [{refused}]")


def _is_read_only(name: str) -> bool:
    prop = KNOWN.get(name)
    return prop is not None and prop.scope in {Scope.STATIC, Scope.CLUSTER}


def _is_per_broker(name: str) -> bool:
    found = PROPERTY_OF_LISTENER.fullmatch(name)
    if found is not None:
        return found["property"] not in CLUSTER_WIDE_OF_LISTENERS
    prop = KNOWN.get(name)
    return prop is not None and prop.scope in {Scope.PER_BROKER, Scope.LISTENER}


def _check_value(name: str, text: str) -> None:
    prop = property_of(name)
    if prop is None:
        return
    try:
        value = prop.parse_set(text)
        if name == OVERRIDES:
            parse_overrides(value)
    except ConfigError as error:
        message = invalid_value(prop.name, text, error) if error.reason else str(error)
        raise Refusal(ErrorCode.INVALID_REQUEST, message) from None
    if name == MAX_CONNECTIONS and not value:
        raise Refusal(ErrorCode.INVALID_REQUEST, NO_CONNECTIONS)
