"""A topic's settings: what was set for the topic itself, over what was set for all brokers, over the node's configuration.

The properties of topics are the rows of `odradek.broker.config.properties` that have a topic name. Implements `odradek.cluster.controller.ports.TopicConfigs`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from odradek.broker.config.groups import check_group_settings
from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import ConfigError, Kind, Property, Scope, invalid_value
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
"""Every property that a topic can have, by the topic's name for it."""
BROKER_PROPERTIES: Final = {name: prop for name, prop in PROPERTIES.items() if prop.scope is not Scope.TOPIC_ALONE}
"""Every property that a broker can have."""

MAX_CONNECTIONS: Final = "max.connections"
NO_CONNECTIONS: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0"
    " for configuration Invalid dynamic configuration"
)
"""Kafka's words: a broker that takes no connection could not be told anything else."""
PRODUCER_ID_EXPIRATION: Final = PROPERTIES["producer.id.expiration.ms"]
VERIFICATION: Final = PROPERTIES["transaction.partition.verification.enable"]
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_FALLBACKS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "log.retention.ms": (("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Where a property is unset, the next one that is set speaks, in milliseconds of its unit."""


class Source(IntEnum):
    """Where a value comes from, with DescribeConfigs' codes."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    CLUSTER_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str
    source: Source


class TopicSettings:
    """All topics of a node, out of its configuration and of what the metadata says of all brokers."""

    def __init__(self, config: Config) -> None:
        """Before the first `on_metadata` the node's configuration speaks alone."""
        self._config = config
        self._dynamic: tuple[tuple[Source, Mapping[str, str]], ...] = ()
        self._static = {name: self._default(prop) for name, prop in TOPIC_PROPERTIES.items()}
        self._defaults = self._static

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Subscribe this before whoever asks for settings."""
        own, everybody = (RESOURCE_BROKER, str(self._config.node_id)), (RESOURCE_BROKER, "")
        changed = delta.changed_configs()
        if own not in changed and everybody not in changed:
            return
        self._dynamic = (
            (Source.DYNAMIC_BROKER, image.config(*own)),
            (Source.CLUSTER_DEFAULT, image.config(*everybody)),
        )
        self._defaults = {**self._static}
        for name, prop in TOPIC_PROPERTIES.items():
            for synonym in self.dynamic_synonyms(prop)[:1]:
                self._defaults[name] = prop.parse(synonym.value, name=prop.name)

    def dynamic_synonyms(self, prop: Property) -> list[Synonym]:
        """What was set for this broker, and for all brokers, since they started: the first one counts."""
        return [Synonym(prop.name, texts[prop.name], source) for source, texts in self._dynamic if prop.name in texts]

    def current(self, prop: Property) -> Any:
        """The value of a property of this broker that may change while it runs."""
        for synonym in self.dynamic_synonyms(prop)[:1]:
            return prop.parse(synonym.value)
        return getattr(self._config, prop.attribute)

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
        """Raises Refusal(INVALID_CONFIG)."""
        lags = {**self._defaults, **self._judged(configs, bounded=not is_internal(topic))}
        least, most = lags["min.compaction.lag.ms"], lags["max.compaction.lag.ms"]
        if least > most:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
            )

    def validate_broker(self, configs: Mapping[str, str]) -> None:
        """Raises Refusal(INVALID_CONFIG), INVALID_REQUEST for what is read when a node starts."""
        unknown = [name for name in configs if name not in BROKER_PROPERTIES]
        if unknown:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {', '.join(unknown)}")
        fixed = [name for name in configs if not PROPERTIES[name].is_dynamic]
        if fixed:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        for name, text in configs.items():
            try:
                value = PROPERTIES[name].parse_set(text)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_REQUEST, invalid_value(name, text, error)) from None
            if name == MAX_CONNECTIONS and not value:
                raise Refusal(ErrorCode.INVALID_REQUEST, NO_CONNECTIONS)

    def validate_group(self, configs: Mapping[str, str]) -> None:
        """Raises Refusal(INVALID_CONFIG)."""
        check_group_settings(self._config, configs)

    def list_default(self, kind: int, name: str) -> tuple[str, ...] | None:
        """What a setting of a topic or broker is where nothing is set; None when it is no list, or unknown."""
        prop = (PROPERTIES if kind == RESOURCE_BROKER else TOPIC_PROPERTIES).get(name)
        if prop is None or prop.kind is not Kind.LIST:
            return None
        text = prop.render(self.current(prop))
        return tuple(text.split(",")) if text else ()

    def parse(self, configs: Mapping[str, str]) -> dict[str, Any]:
        """The values of what was set for a topic. Raises Refusal(INVALID_CONFIG)."""
        return self._parsed(configs, Property.parse)

    def _judged(self, configs: Mapping[str, str], *, bounded: bool) -> dict[str, Any]:
        """The same, of what somebody wants to set."""
        return self._parsed(configs, partial(Property.parse_set, bounded=bounded))

    def _parsed(self, configs: Mapping[str, str], parse: Callable[..., Any]) -> dict[str, Any]:
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
        """Every setting of a topic that has `configs` set, in order of name."""
        return tuple(
            ConfigValue(name, self.text(name, configs), int(source_of(self.synonyms(name, configs))))
            for name in TOPIC_PROPERTIES
        )

    def text(self, name: str, configs: Mapping[str, str]) -> str | None:
        """The setting as it is understood: "TRUE" was set, "true" holds."""
        prop = TOPIC_PROPERTIES[name]
        return prop.render(prop.parse(configs[name], name=name) if name in configs else self._defaults[name])

    def synonyms(self, name: str, configs: Mapping[str, str]) -> list[Synonym]:
        """Where the setting comes from: the first one counts, the others are what it hides."""
        prop = TOPIC_PROPERTIES[name]
        own = [Synonym(name, self.text(name, configs) or "", Source.TOPIC)] if name in configs else []
        own += self.dynamic_synonyms(prop)
        chain = [prop, *(PROPERTIES[fallback] for fallback, _ in _FALLBACKS.get(prop.name, ()))]
        return own + [synonym for each in chain for synonym in broker_synonyms(self._config, each)]

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """What storage obeys. A setting in the metadata log that is not understood (written by a newer version) is an error."""
        values = {**self._defaults, **self.parse(configs)}
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
    """Where a setting comes from."""
    return synonyms[0].source if synonyms else Source.DEFAULT


def broker_synonyms(config: Config, prop: Property) -> list[Synonym]:
    """What the node's configuration says about one property, the value in force first."""
    found: list[Synonym] = []
    if not prop.has_default:
        return found
    if prop.name in config.given and (text := prop.render(getattr(config, prop.attribute))) is not None:
        found.append(Synonym(prop.name, text, Source.STATIC_BROKER))
    if (text := prop.render(prop.default)) is not None:
        found.append(Synonym(prop.name, text, Source.DEFAULT))
    return found
