"""From one image to the next: records are played into a delta, the delta builds the image.

A delta is used twice: by the controller, which plays its own records as soon as they are appended and decides on the result,
and by the publisher of committed metadata, whose subscribers read from it what has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.image import (
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    RESOURCE_TOPIC,
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
    VersionRange,
    quota_entity,
)
from odradek.cluster.metadata.overlay import Changes, Overlay
from odradek.cluster.metadata.partition_change import changed_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from odradek.cluster.metadata.image import ConfigResource, QuotaEntity


K = TypeVar("K")
V = TypeVar("V")
LINEAGE_MAX: Final = 16
"""Starts in a row that did not get as far as being unfenced, of which the last are remembered."""


class InconsistentMetadata(Exception):
    """A record of the metadata log contradicts those before it: the log is damaged, or a bug wrote it. The node stops."""


class MetadataDelta:
    """Records played above `base`. `changes` tells subscribers what is new; `build()` gives the image after it."""

    def __init__(self, base: MetadataImage) -> None:
        """An empty delta: builds an image equal to `base`."""
        self.base = base
        self.offset = base.offset
        self.epoch = base.epoch
        self.changes = Changes.above(base)
        self._before_transaction: Changes | None = None

    @classmethod
    def from_nothing(cls, image: MetadataImage) -> MetadataDelta:
        """The whole of `image` as news, for a subscriber that has seen nothing yet."""
        delta = cls(EMPTY_IMAGE)
        delta.offset, delta.epoch = image.offset, image.epoch
        changes = delta.changes
        changes.brokers.changes.update(image.brokers)
        changes.controllers.changes.update(image.controllers)
        changes.features.changes.update(image.features)
        changes.next_producer_id = image.next_producer_id
        for topic_id, topic in image.topics_by_id.items():
            shell = replace(topic, partitions={})
            changes.topics.put(topic_id, shell)
            changes.names.put(topic.name, shell)
            changes.partitions[topic_id] = Overlay({}, dict(topic.partitions))
        for resource, values in image.configs.items():
            changes.configs[resource] = Overlay({}, dict(values))
        for entity, quotas in image.client_quotas.items():
            changes.client_quotas[entity] = Overlay({}, dict(quotas))
        return delta

    @property
    def in_transaction(self) -> bool:
        """Between BeginTransaction and its end (KIP-868): nobody may see the state in between."""
        return self._before_transaction is not None

    @property
    def is_empty(self) -> bool:
        return self.offset == self.base.offset

    def replay(self, offset: int, epoch: int, record: r.MetadataRecord) -> None:
        """Take the record at `offset`, written in `epoch`.

        Raises NotUnderstood for a type that this version does not know, InconsistentMetadata for one that cannot be.
        """
        handler = HANDLERS.get(type(record))
        if handler is None:
            raise r.NotUnderstood(
                f"metadata record {type(record).__name__} at offset {offset} is not supported by this version"
            )
        try:
            handler(self, record)
        except InconsistentMetadata as error:
            raise InconsistentMetadata(f"metadata log, offset {offset}: {error}") from None
        self.offset = offset
        self.epoch = epoch

    def skip_to(self, offset: int, epoch: int) -> None:
        """An offset that holds no metadata (a control record) has been passed."""
        self.offset = offset
        self.epoch = epoch

    def build(self) -> MetadataImage:
        """The image after all records played so far."""
        changes = self.changes
        by_id, by_name = changes.topics.copy(), changes.names.copy()
        for topic_id, partitions in changes.partitions.items():
            shell = changes.topics.get(topic_id)
            if shell is not None and partitions.changes:
                built = partitions.build()
                topic = replace(shell, partitions={index: built[index] for index in sorted(built)})
                by_id.put(topic_id, topic)
                by_name.put(topic.name, topic)
        return MetadataImage(
            self.offset,
            self.epoch,
            changes.brokers.build(),
            changes.controllers.build(),
            by_name.build(),
            by_id.build(),
            _merged(self.base.configs, changes.configs),
            changes.features.build(),
            changes.next_producer_id,
            _merged(self.base.client_quotas, changes.client_quotas),
        )

    # What has changed, for subscribers.

    def created_topics(self) -> Iterable[UUID]:
        return [t for t, topic in self.changes.topics.changes.items() if topic and t not in self.base.topics_by_id]

    def deleted_topics(self) -> Iterable[TopicImage]:
        """As they were before."""
        gone = [t for t, topic in self.changes.topics.changes.items() if topic is None]
        return [self.base.topics_by_id[topic_id] for topic_id in gone if topic_id in self.base.topics_by_id]

    def changed_partitions(self) -> Iterable[tuple[UUID, int]]:
        """(topic id, index) of every partition that is new or differs, in order of their records; deleted ones are not in it."""
        return [
            (topic_id, index)
            for topic_id, partitions in self.changes.partitions.items()
            if self.changes.topics.get(topic_id) is not None
            for index in partitions.changes
        ]

    def changed_brokers(self) -> Iterable[int]:
        return list(self.changes.brokers.changes)

    def changed_configs(self) -> Iterable[ConfigResource]:
        return list(self.changes.configs)

    def changed_client_quotas(self) -> Iterable[QuotaEntity]:
        return list(self.changes.client_quotas)

    def changed_features(self) -> Iterable[str]:
        return list(self.changes.features.changes)

    # One method for each record type.

    def _topic_partitions(self, topic_id: UUID) -> Overlay[int, PartitionImage]:
        found = self.changes.partitions.get(topic_id)
        if found is None:
            topic = self.changes.topics.get(topic_id)
            if topic is None:
                raise InconsistentMetadata(f"no topic has the id {topic_id}")
            found = self.changes.partitions[topic_id] = Overlay(topic.partitions)
        return found

    def _topic(self, record: r.TopicRecord) -> None:
        if self.changes.names.get(record.name) is not None or self.changes.topics.get(record.topic_id) is not None:
            raise InconsistentMetadata(f"topic {record.name} or its id {record.topic_id} exists already")
        topic = TopicImage(record.name, record.topic_id, {})
        self.changes.topics.put(record.topic_id, topic)
        self.changes.names.put(record.name, topic)
        self.changes.partitions[record.topic_id] = Overlay({})

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self.changes.topics.get(record.topic_id)
        if topic is None:
            raise InconsistentMetadata(f"no topic has the id {record.topic_id}")
        self.changes.topics.remove(record.topic_id)
        self.changes.names.remove(topic.name)
        self.changes.partitions.pop(record.topic_id, None)
        configs = self._configs((RESOURCE_TOPIC, topic.name))
        for name in configs.build():
            configs.remove(name)

    def _partition(self, record: r.PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        self._topic_partitions(record.topic_id).put(
            record.partition_id,
            PartitionImage(
                record.partition_id,
                replicas,
                tuple(record.isr),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                tuple(record.directories) or (DIRECTORY_UNASSIGNED,) * len(replicas),
                tuple(record.removing_replicas),
                tuple(record.adding_replicas),
                record.leader_recovery_state,
                tuple(record.eligible_leader_replicas or ()),
                tuple(record.last_known_elr or ()),
            ),
        )

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._topic_partitions(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise InconsistentMetadata(f"topic {record.topic_id} has no partition {record.partition_id}")
        partitions.put(record.partition_id, changed_partition(old, record))

    def _config(self, record: r.ConfigRecord) -> None:
        configs = self._configs((record.resource_type, record.resource_name))
        if record.value is None:
            configs.remove(record.name)
        else:
            configs.put(record.name, record.value)

    def _configs(self, resource: ConfigResource) -> Overlay[str, str]:
        found = self.changes.configs.get(resource)
        if found is None:
            found = self.changes.configs[resource] = Overlay(self.base.configs.get(resource, {}))
        return found

    def _client_quota(self, record: r.ClientQuotaRecord) -> None:
        entity = quota_entity((each.entity_type, each.entity_name) for each in record.entity)
        quotas = self.changes.client_quotas.get(entity)
        if quotas is None:
            quotas = self.changes.client_quotas[entity] = Overlay(self.base.client_quotas.get(entity, {}))
        if record.remove:
            quotas.remove(record.key)
        else:
            quotas.put(record.key, record.value)

    def _feature(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.changes.features.remove(record.name)
        else:
            self.changes.features.put(record.name, record.feature_level)

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self.changes.next_producer_id:
            raise InconsistentMetadata(
                f"next producer id {record.next_producer_id} is not above {self.changes.next_producer_id}"
            )
        self.changes.next_producer_id = record.next_producer_id

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        names = [record.topic_name] if record.topic_name else list(self.changes.names.build())
        for name in names:
            topic = self.changes.names.get(name)
            if topic is None:
                raise InconsistentMetadata(f"no topic is called {name}")
            partitions = self._topic_partitions(topic.topic_id)
            for index, partition in partitions.build().items():
                if partition.elr or partition.last_known_elr:
                    partitions.put(index, replace(partition, elr=(), last_known_elr=()))

    def _register_broker(self, record: r.RegisterBrokerRecord) -> None:
        image = BrokerImage(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            tuple(record.cordoned_log_dirs or ()),
            self._lineage(record),
        )
        self.changes.brokers.put(record.broker_id, image)

    def _lineage(self, record: r.RegisterBrokerRecord) -> tuple[int, ...]:
        before = self.changes.brokers.get(record.broker_id)
        if before is None:
            return ()
        if before.epoch == record.broker_epoch:
            return before.lineage
        return (*before.lineage, before.epoch)[-LINEAGE_MAX:]

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.changes.brokers.get(broker_id)
        if broker is None:
            raise InconsistentMetadata(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise InconsistentMetadata(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
        return broker

    def _broker_change(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in {-1, 0, 1} or record.in_controlled_shutdown not in {0, 1}:
            raise InconsistentMetadata(f"broker {record.broker_id} is changed to an unknown state")
        if record.fenced:
            broker = replace(broker, fenced=record.fenced == 1)
            if not broker.fenced:
                broker = replace(broker, lineage=())
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_directories=tuple(record.cordoned_log_dirs))
        self.changes.brokers.put(record.broker_id, broker)

    def _fence_broker(self, record: r.FenceBrokerRecord) -> None:
        self.changes.brokers.put(record.id, replace(self._broker(record.id, record.epoch), fenced=True))

    def _unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        self.changes.brokers.put(record.id, replace(self._broker(record.id, record.epoch), fenced=False, lineage=()))

    def _unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self.changes.brokers.remove(record.broker_id)

    def _register_controller(self, record: r.RegisterControllerRecord) -> None:
        image = ControllerImage(
            record.controller_id,
            record.incarnation_id,
            tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
        )
        self.changes.controllers.put(record.controller_id, image)

    def _begin_transaction(self, record: r.BeginTransactionRecord) -> None:
        if self._before_transaction is not None:
            raise InconsistentMetadata("a metadata transaction begins inside another one")
        self._before_transaction = self.changes.copy()

    def _end_transaction(self, record: r.EndTransactionRecord) -> None:
        if self._before_transaction is None:
            raise InconsistentMetadata("a metadata transaction ends that has not begun")
        self._before_transaction = None

    def _abort_transaction(self, record: r.AbortTransactionRecord) -> None:
        if self._before_transaction is None:
            raise InconsistentMetadata("a metadata transaction is aborted that has not begun")
        self.changes, self._before_transaction = self._before_transaction, None

    def _no_op(self, record: r.NoOpRecord) -> None:
        """Kafka writes these so that an idle log moves; they say nothing."""


def _merged(base: Mapping[K, Mapping[str, V]], changes: Mapping[K, Overlay[str, V]]) -> Mapping[K, Mapping[str, V]]:
    """What is set for each thing; those for which nothing is set are left out."""
    if not changes:
        return base
    built = {key: overlay.build() for key, overlay in changes.items()}
    return {key: values for key, values in {**base, **built}.items() if values}


HANDLERS: dict[type[r.MetadataRecord], Callable[[MetadataDelta, Any], None]] = {
    r.TopicRecord: MetadataDelta._topic,
    r.RemoveTopicRecord: MetadataDelta._remove_topic,
    r.PartitionRecord: MetadataDelta._partition,
    r.PartitionChangeRecord: MetadataDelta._partition_change,
    r.ConfigRecord: MetadataDelta._config,
    r.ClientQuotaRecord: MetadataDelta._client_quota,
    r.FeatureLevelRecord: MetadataDelta._feature,
    r.ProducerIdsRecord: MetadataDelta._producer_ids,
    r.ClearElrRecord: MetadataDelta._clear_elr,
    r.RegisterBrokerRecord: MetadataDelta._register_broker,
    r.BrokerRegistrationChangeRecord: MetadataDelta._broker_change,
    r.FenceBrokerRecord: MetadataDelta._fence_broker,
    r.UnfenceBrokerRecord: MetadataDelta._unfence_broker,
    r.UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    r.RegisterControllerRecord: MetadataDelta._register_controller,
    r.BeginTransactionRecord: MetadataDelta._begin_transaction,
    r.EndTransactionRecord: MetadataDelta._end_transaction,
    r.AbortTransactionRecord: MetadataDelta._abort_transaction,
    r.NoOpRecord: MetadataDelta._no_op,
}
