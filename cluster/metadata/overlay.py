"""Changes above values that are never touched: what a metadata delta is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

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
        TopicImage,
    )

K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """Changes above a mapping that is never touched. A changed key with None is a removed one."""

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
    """Everything that a delta has changed so far, above its base image."""

    brokers: Overlay[int, BrokerImage]
    controllers: Overlay[int, ControllerImage]
    topics: Overlay[UUID, TopicImage]
    names: Overlay[str, TopicImage]
    partitions: dict[UUID, Overlay[int, PartitionImage]]
    configs: dict[ConfigResource, Overlay[str, str]]
    features: Overlay[str, int]
    next_producer_id: int
    client_quotas: dict[QuotaEntity, Overlay[str, float]]

    @classmethod
    def above(cls, base: MetadataImage) -> Changes:
        return cls(
            Overlay(base.brokers),
            Overlay(base.controllers),
            Overlay(base.topics_by_id),
            Overlay(base.topics),
            {},
            {},
            Overlay(base.features),
            base.next_producer_id,
            {},
        )

    def copy(self) -> Changes:
        return Changes(
            self.brokers.copy(),
            self.controllers.copy(),
            self.topics.copy(),
            self.names.copy(),
            {topic_id: overlay.copy() for topic_id, overlay in self.partitions.items()},
            {resource: overlay.copy() for resource, overlay in self.configs.items()},
            self.features.copy(),
            self.next_producer_id,
            {entity: overlay.copy() for entity, overlay in self.client_quotas.items()},
        )
