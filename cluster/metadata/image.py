"""The metadata of the cluster as immutable values.

A `MetadataImage` is what the metadata log says up to one offset. Handlers read it without locks or awaits: whoever holds an
image holds one consistent state, however long. The only way from one image to the next is `odradek.cluster.metadata.delta.MetadataDelta`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1

# Directory ids below 100 are reserved (KIP-858).
DIRECTORY_UNASSIGNED = UUID(int=0)
DIRECTORY_LOST = UUID(int=1)
DIRECTORY_MIGRATING = UUID(int=2)
RESERVED_IDS_MAX = 99

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

ConfigResource = tuple[int, str]
"""(resource type, resource name): (2, topic), (4, broker id as text), (4, "") = default of all brokers, (32, group)"""


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) in order of the type, "client-id", "ip" and "user"; None for everybody of that type."""


def quota_entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """As an image has it, whatever the order."""
    return tuple(sorted(named, key=lambda each: each[0]))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens: `security_protocol` is Kafka's number (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Levels of a feature, both ends included."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registration. `epoch` is the offset at which it was made and identifies it."""

    broker_id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[UUID, ...]
    cordoned_directories: tuple[UUID, ...] = ()
    lineage: tuple[int, ...] = field(default=(), compare=False)
    """Epochs of the registrations under this id before it, as long as none of them, nor this one, was ever unfenced since the first.
    They have acknowledged nothing after it. Not in snapshots: what is forgotten there counts as lost.
    """

    @property
    def is_active(self) -> bool:
        """May it get new replicas and leaderships?"""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of that listener name, if the broker has it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One controller's registration (KIP-919)."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. `directories` is parallel to `replicas`. `elr` and `last_known_elr` belong to KIP-966."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `partitions` in order of their index."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything that the log says up to and including `offset` (-1: nothing), written in `epoch`.

    The mappings are never changed after construction. `topics` is keyed by name, in order of creation.
    """

    offset: int = -1
    epoch: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def leader_of(self, topic: str, index: int) -> int | None:
        """Broker id, NO_LEADER when there is none at the moment, None when there is no such partition."""
        found = self.partition(topic, index)
        return None if found is None else found.leader

    def active_brokers(self) -> Iterator[BrokerImage]:
        """Brokers that may get replicas and leaderships, in order of their id."""
        return (self.brokers[broker_id] for broker_id in sorted(self.brokers) if self.brokers[broker_id].is_active)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for that resource itself (defaults not included)."""
        return self.configs.get((resource_type, name), {})

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.config(RESOURCE_TOPIC, topic)

    def feature(self, name: str) -> int:
        """Finalized level; 0 when the feature is off."""
        return self.features.get(name, 0)


EMPTY_IMAGE = MetadataImage()
