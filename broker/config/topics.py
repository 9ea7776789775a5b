"""Configurations of topics: values of the topic, of this broker, of all brokers, of the node's file, and defaults.

The first of these that is set takes precedence. The properties of topics are the rows of
`odradek.broker.config.properties` with a topic property.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

import structlog

from odradek.broker.config.brokers import KNOWN, check_broker_settings, has_effect, static_value
from odradek.broker.config.groups import check_group_settings
from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import ConfigError, Kind, Property, invalid_value
from odradek.cluster.controller.messages.topics import ConfigValue
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER, MetadataImage
from odradek.cluster.metadata.topic_names import is_internal
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.config import LogConfig

TOPIC_PROPERTIES: Final[dict[str, Property]] = {
    prop.topic_name: prop
    for prop in sorted(PROPERTIES.values(), key=lambda prop: prop.topic_name or "")
    if prop.topic_name
}
"""Each property of a topic, by the name that topics use for it."""
PRODUCER_ID_EXPIRATION: Final = PROPERTIES["producer.id.expiration.ms"]
VERIFICATION: Final = PROPERTIES["transaction.partition.verification.enable"]
_logger = structlog.get_logger(__name__)
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_FALLBACKS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Property -> properties that replace it if it is unset, each with its unit in milliseconds.

The first property that is set applies.
"""
REPLICA_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Lists that are searched for each replica and fetch."""


class Source(IntEnum):
    """The source of a value, with the codes of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    CLUSTER_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value from which a configuration could be taken, as DescribeConfigs lists them (KIP-226)."""

    name: str
    value: str
    source: Source


class TopicSettings:
    """Configurations of all topics on a node, from its properties and from the dynamic configurations of brokers.

    It implements `odradek.cluster.controller.ports.TopicConfigs`.
    """

    def __init__(self, config: Config) -> None:
        """Start with the node's own properties. `on_metadata` adds the dynamic configurations."""
        self._config = config
        self._dynamic: tuple[tuple[Source, Mapping[str, str]], ...] = ()
        self._static = {name: self._default(prop) for name, prop in TOPIC_PROPERTIES.items()}
        self._defaults = self._static
        self._without_effect: list[str] = []
        self._inherited: dict[str, ConfigValue] = {}
        """Configurations by name as `effective` returns them for a topic that does not set them; filled on demand."""

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the dynamic configurations of brokers in `image`.

        Subscribe this method before the subscribers that read configurations.
        """
        own, cluster_default = (RESOURCE_BROKER, str(self._config.node_id)), (RESOURCE_BROKER, "")
        changed = delta.changed_configs()
        if own not in changed and cluster_default not in changed:
            return
        self._dynamic = (
            (Source.DYNAMIC_BROKER, image.config(*own)),
            (Source.CLUSTER_DEFAULT, image.config(*cluster_default)),
        )
        self._warn_of_values_without_effect()
        self._defaults = {**self._static}
        self._inherited.clear()
        for name, prop in TOPIC_PROPERTIES.items():
            for synonym in self.dynamic_synonyms(prop)[:1]:
                self._defaults[name] = prop.parse(synonym.value, name=prop.name)

    def _warn_of_values_without_effect(self) -> None:
        """Log the names of dynamic values without effect, once until they change."""
        names = sorted({name for _, texts in self._dynamic for name in texts if not has_effect(name)})
        if names and names != self._without_effect:
            _logger.warning("dynamic properties without effect", names=", ".join(names))
        self._without_effect = names

    def dynamic_synonyms(self, prop: Property) -> list[Synonym]:
        """Return the dynamic values of this broker and of all brokers, the one in force first."""
        return self.dynamic_texts(prop.name)

    def dynamic_texts(self, name: str) -> list[Synonym]:
        """Return the dynamic values that this broker and all brokers have for a name, the one in force first."""
        return [Synonym(name, texts[name], source) for source, texts in self._dynamic if name in texts]

    def current(self, prop: Property) -> Any:
        """Return the present value of a property of this broker; it can be a dynamic one."""
        for synonym in self.dynamic_synonyms(prop)[:1]:
            return prop.parse(synonym.value)
        return static_value(self._config, prop)

    @property
    def num_partitions(self) -> int:
        return self._config.num_partitions

    @property
    def default_replication_factor(self) -> int:
        return self._config.default_replication_factor

    @property
    def unclean_leader_election_enable(self) -> bool:
        return self._config.unclean_leader_election_enable

    @property
    def min_insync_replicas(self) -> int:
        return self._config.min_insync_replicas

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        """Validate configurations that are to be set for a topic. Raise Refusal(INVALID_CONFIG)."""
        values = {**self._defaults, **self._parse_to_set(configs, bounded=not is_internal(topic))}
        lag_min, lag_max = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        if lag_min > lag_max:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({lag_min}) > max.compaction.lag.ms ({lag_max})",
            )

    def validate_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        """Validate configurations that are to be set for a broker, or for all brokers if its name is empty.

        Raise Refusal as `check_broker_settings`.
        """
        check_broker_settings(broker, configs)

    def validate_group(self, configs: Mapping[str, str]) -> None:
        """Validate configurations that are to be set for a group. Raise Refusal(INVALID_CONFIG)."""
        check_group_settings(self._config, configs)

    def list_default(self, kind: int, name: str) -> tuple[str, ...] | None:
        """Return the default of a list property of a topic or broker; None for other properties and unknown names."""
        prop = (KNOWN if kind == RESOURCE_BROKER else TOPIC_PROPERTIES).get(name)
        if prop is None or prop.kind is not Kind.LIST:
            return None
        text = prop.render(self.current(prop))
        return tuple(text.split(",")) if text else ()

    def parse(self, configs: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of a topic's stored configurations. Raise Refusal(INVALID_CONFIG)."""
        return self._parse_with(Property.parse, configs)

    def _parse_to_set(self, configs: Mapping[str, str], *, bounded: bool) -> dict[str, Any]:
        """Return the values of configurations that are to be set. Raise Refusal(INVALID_CONFIG)."""
        return self._parse_with(partial(Property.parse_set, bounded=bounded), configs)

    def _parse_with(self, parse: Callable[..., Any], configs: Mapping[str, str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, text in configs.items():
            prop = TOPIC_PROPERTIES.get(name)
            if prop is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            try:
                values[name] = parse(prop, text, name=name)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, invalid_value(name, text, error)) from None
        return values

    def effective(self, topic: str, configs: Mapping[str, str]) -> tuple[ConfigValue, ...]:
        """Return all configurations of a topic by name. `configs` are those that are set for the topic."""
        if not self._inherited:
            self._inherited |= {name: self._effective(name, {}) for name in TOPIC_PROPERTIES}
        return tuple(
            self._effective(name, configs) if name in configs else inherited
            for name, inherited in self._inherited.items()
        )

    def _effective(self, name: str, configs: Mapping[str, str]) -> ConfigValue:
        return ConfigValue(name, self.text(name, configs), int(source_of(self.synonyms(name, configs))))

    def text(self, name: str, configs: Mapping[str, str]) -> str | None:
        """Return a configuration in Kafka's canonical form: "true" if "TRUE" was set."""
        prop = TOPIC_PROPERTIES[name]
        return prop.render(prop.parse(configs[name], name=name) if name in configs else self._defaults[name])

    def synonyms(self, name: str, configs: Mapping[str, str]) -> list[Synonym]:
        """Return the possible values of a configuration, the one in force first."""
        prop = TOPIC_PROPERTIES[name]
        own = [Synonym(name, self.text(name, configs) or "", Source.TOPIC)] if name in configs else []
        own += self.dynamic_synonyms(prop)
        chain = [prop, *(PROPERTIES[fallback] for fallback, _ in _FALLBACKS.get(prop.name, ()))]
        return own + [synonym for link in chain for synonym in broker_synonyms(self._config, link)]

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic's logs.

        Raise Refusal(INVALID_CONFIG) for a stored configuration that this version does not know.
        """
        values = {**self._defaults, **self.parse(configs)}
        for name in REPLICA_LISTS:
            values[name] = frozenset(values[name])
        return LogConfig(
            **{name.replace(".", "_"): value for name, value in values.items() if not TOPIC_PROPERTIES[name].fixed},
            producer_id_expiration_ms=self.current(PRODUCER_ID_EXPIRATION),
            verification_enabled=self.current(VERIFICATION),
            validate_records_all=self._config.odradek_validate_records == "all",
        )

    def _default(self, prop: Property) -> Any:
        value = getattr(self._config, prop.attribute)
        for name, unit_ms in _FALLBACKS.get(prop.name, ()):
            if value is not None:
                break
            value = getattr(self._config, PROPERTIES[name].attribute)
            value = value if value is None else max(-1, value) if value < 0 else value * unit_ms
        return value


def source_of(synonyms: Sequence[Synonym]) -> Source:
    """Return the source of the value in force."""
    return synonyms[0].source if synonyms else Source.DEFAULT


def broker_synonyms(config: Config, prop: Property) -> list[Synonym]:
    """Return the values of a property in the node's file and by default, the one in force first."""
    synonyms: list[Synonym] = []
    if not prop.has_default:
        return synonyms
    is_given = prop.name in config.given or prop.name in config.without_effect
    if is_given and (text := prop.render(static_value(config, prop))) is not None:
        synonyms.append(Synonym(prop.name, text, Source.STATIC_BROKER))
    if (text := prop.render(prop.default)) is not None:
        synonyms.append(Synonym(prop.name, text, Source.DEFAULT))
    return synonyms
