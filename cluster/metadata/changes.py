"""Changes above an image that stays unchanged: the content of a metadata delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from odradek.cluster.metadata.errors import InconsistentMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from odradek.cluster.metadata.image import (
        BrokerImage,
        ConfigResource,
        ControllerImage,
        MetadataImage,
        PartitionImage,
        QuotaEntity,
        ScramKey,
        TopicImage,
    )
    from odradek.cluster.metadata.tokens import DelegationToken
    from odradek.protocol.acls import Acl
    from odradek.protocol.sasl.scram import Credential

K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """Changes above a mapping that stays unchanged. The change of a removed key is None."""

    __slots__ = ("base", "changes")

    def __init__(self, base: Mapping[K, V], changes: dict[K, V | None] | None = None) -> None:
        """`base` is shared, not copied."""
        self.base = base
        self.changes: dict[K, V | None] = {} if changes is None else changes

    def get(self, key: K) -> V | None:
        return self.changes[key] if key in self.changes else self.base.get(key)

    def put(self, key: K, value: V) -> None:
        self.changes[key] = value

    def remove(self, key: K) -> None:
        self.changes[key] = None

    def build(self) -> Mapping[K, V]:
        """Return the mapping with all changes. It is `base` itself if there are none."""
        if not self.changes:
            return self.base
        merged = dict(self.base)
        for key, value in self.changes.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged

    def copy(self) -> Overlay[K, V]:
        return Overlay(self.base, dict(self.changes))


@dataclass(slots=True)
class Changes:
    """All changes of a delta above its base image."""

    base: MetadataImage
    brokers: Overlay[int, BrokerImage]
    controllers: Overlay[int, ControllerImage]
    topics: Overlay[UUID, TopicImage]
    names: Overlay[str, TopicImage]
    partitions: dict[UUID, Overlay[int, PartitionImage]]
    configs: dict[ConfigResource, Overlay[str, str]]
    features: Overlay[str, int]
    next_producer_id: int
    client_quotas: dict[QuotaEntity, Overlay[str, float]]
    acls: Overlay[UUID, Acl]
    scram: Overlay[ScramKey, Credential]
    tokens: Overlay[str, DelegationToken]

    @classmethod
    def above(cls, base: MetadataImage) -> Changes:
        """Return an empty set of changes with `base` as its base image."""
        return cls(
            base=base,
            brokers=Overlay(base.brokers),
            controllers=Overlay(base.controllers),
            topics=Overlay(base.topics_by_id),
            names=Overlay(base.topics),
            partitions={},
            configs={},
            features=Overlay(base.features),
            next_producer_id=base.next_producer_id,
            client_quotas={},
            acls=Overlay(base.acls),
            scram=Overlay(base.scram),
            tokens=Overlay(base.tokens),
        )

    def copy(self) -> Changes:
        return Changes(
            base=self.base,
            brokers=self.brokers.copy(),
            controllers=self.controllers.copy(),
            topics=self.topics.copy(),
            names=self.names.copy(),
            partitions={topic_id: overlay.copy() for topic_id, overlay in self.partitions.items()},
            configs={resource: overlay.copy() for resource, overlay in self.configs.items()},
            features=self.features.copy(),
            next_producer_id=self.next_producer_id,
            client_quotas={entity: overlay.copy() for entity, overlay in self.client_quotas.items()},
            acls=self.acls.copy(),
            scram=self.scram.copy(),
            tokens=self.tokens.copy(),
        )

    def partitions_of(self, topic_id: UUID) -> Overlay[int, PartitionImage]:
        """Return the partitions of a topic, to change them. Raise InconsistentMetadata if the topic does not exist."""
        found = self.partitions.get(topic_id)
        if found is None:
            topic = self.topics.get(topic_id)
            if topic is None:
                raise InconsistentMetadata(f"no topic has the id {topic_id}")
            found = self.partitions[topic_id] = Overlay(topic.partitions)
        return found

    def configs_of(self, resource: ConfigResource) -> Overlay[str, str]:
        """Return the settings of a resource, to change them."""
        found = self.configs.get(resource)
        if found is None:
            found = self.configs[resource] = Overlay(self.base.configs.get(resource, {}))
        return found

    def quotas_of(self, entity: QuotaEntity) -> Overlay[str, float]:
        """Return the quotas of an entity, to change them."""
        found = self.client_quotas.get(entity)
        if found is None:
            found = self.client_quotas[entity] = Overlay(self.base.client_quotas.get(entity, {}))
        return found
