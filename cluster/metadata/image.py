"""The metadata of the cluster as immutable values.

A `MetadataImage` is the state of the metadata log at one offset. It is consistent, and never changes, so request
handlers read it without locks. Only `odradek.cluster.metadata.delta.MetadataDelta` makes the next image.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from odradek.frozen import frozen_dataclass
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from odradek.cluster.metadata.tokens import DelegationToken
    from odradek.protocol.acls import Acl
    from odradek.protocol.sasl.scram import Credential

RECOVERED = 0
RECOVERING = 1

# Directory ids below 100 are reserved (KIP-858).
DIRECTORY_UNASSIGNED = UUID(int=0)
DIRECTORY_LOST = UUID(int=1)
DIRECTORY_MIGRATING = UUID(int=2)
RESERVED_IDS_MAX = 99

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
"""(resource type, resource name): (2, topic), (4, broker id as text), (4, "") for all brokers, (32, group)."""
ScramKey = tuple[str, int]
"""The key of a SCRAM credential: the name of the user, and Kafka's code of the mechanism."""
QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs, ordered by type ("client-id", "ip", "user").

Name None: the default of that type.
"""


def quota_entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the pairs in the order in which an image has them."""
    return tuple(sorted(named, key=lambda each: each[0]))


@frozen_dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of a node. `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@frozen_dataclass(frozen=True, slots=True)
class VersionRange:
    """Supported levels of a feature, from `min` to `max` inclusive."""

    min: int
    max: int


class _Listener(Protocol):
    """Listener in a registration request or record."""

    name: str
    host: str
    port: int
    security_protocol: int


class _Feature(Protocol):
    """Supported feature in a registration request or record."""

    name: str
    min_supported_version: int
    max_supported_version: int


def endpoints_of(listeners: Iterable[_Listener]) -> tuple[Endpoint, ...]:
    """Return the listeners of a registration as endpoints, in the same order."""
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in listeners)


def supported_features_of(features: Iterable[_Feature]) -> dict[str, VersionRange]:
    """Return the features of a registration: name -> supported levels."""
    return {each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in features}


@frozen_dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registration. `epoch` is the broker epoch: the offset of the registration record."""

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
    lineage: tuple[int, ...] = ()
    """Broker epochs of the preceding registrations of this broker id, while none of them has been unfenced.

    A broker that was never unfenced has acknowledged nothing, so its log is that of the first of these registrations.
    """

    @property
    def is_active(self) -> bool:
        """True if the controller may give it replicas and leaders."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint with that listener name. None: the broker has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@frozen_dataclass(frozen=True, slots=True)
class ControllerImage:
    """One controller's registration (KIP-919)."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


@frozen_dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. `directories` has one item per item of `replicas`. `elr` and `last_known_elr`: see KIP-966."""

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


@frozen_dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic, with its partitions in the order of their indexes."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]


@frozen_dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state of the metadata log after the record at `offset` (-1: empty), which was written in `epoch`.

    The mappings never change after construction. `topics` has the topics by name, in the order of their creation.
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
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    scram: Mapping[ScramKey, Credential] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def leader_of(self, topic: str, index: int) -> int | None:
        """Return the broker id of the leader. NO_LEADER: the partition has none. None: the partition does not exist."""
        found = self.partition(topic, index)
        return None if found is None else found.leader

    def active_brokers(self) -> Iterator[BrokerImage]:
        """Return the brokers that the controller may give replicas and leaders, in the order of their ids."""
        return (self.brokers[broker_id] for broker_id in sorted(self.brokers) if self.brokers[broker_id].is_active)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the settings of the resource itself, without defaults."""
        return self.configs.get((resource_type, name), {})

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.config(RESOURCE_TOPIC, topic)

    def feature(self, name: str) -> int:
        """Return the finalized level. 0: the feature is disabled."""
        return self.features.get(name, 0)


EMPTY_IMAGE = MetadataImage()
