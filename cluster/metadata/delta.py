"""Change from one metadata image to the next: records are replayed into a delta, and the delta builds the image.

A delta has two users. The controller replays its own records after each append, and decides on the resulting image.
The publisher replays committed records, and its subscribers read from the delta what has changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.changes import Changes, Overlay
from odradek.cluster.metadata.errors import InconsistentMetadata, UnsupportedMetadata
from odradek.cluster.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from odradek.cluster.metadata.replay import acls, brokers, scram, settings, tokens, topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from odradek.cluster.metadata.image import ConfigResource, QuotaEntity

K = TypeVar("K")
V = TypeVar("V")

REPLAY: Final[Mapping[type[r.MetadataRecord], Callable[[Changes, Any], None]]] = {
    r.TopicRecord: topics.replay_topic,
    r.RemoveTopicRecord: topics.replay_remove_topic,
    r.PartitionRecord: topics.replay_partition,
    r.PartitionChangeRecord: topics.replay_partition_change,
    r.ClearElrRecord: topics.replay_clear_elr,
    r.ConfigRecord: settings.replay_config,
    r.ClientQuotaRecord: settings.replay_client_quota,
    r.FeatureLevelRecord: settings.replay_feature_level,
    r.ProducerIdsRecord: settings.replay_producer_ids,
    r.RegisterBrokerRecord: brokers.replay_register_broker,
    r.BrokerRegistrationChangeRecord: brokers.replay_broker_change,
    r.FenceBrokerRecord: brokers.replay_fence_broker,
    r.UnfenceBrokerRecord: brokers.replay_unfence_broker,
    r.UnregisterBrokerRecord: brokers.replay_unregister_broker,
    r.RegisterControllerRecord: brokers.replay_register_controller,
    r.UnregisterControllerRecord: brokers.replay_unregister_controller,
    r.AccessControlEntryRecord: acls.replay_acl,
    r.RemoveAccessControlEntryRecord: acls.replay_remove_acl,
    r.UserScramCredentialRecord: scram.replay_scram,
    r.RemoveUserScramCredentialRecord: scram.replay_remove_scram,
    r.DelegationTokenRecord: tokens.replay_token,
    r.RemoveDelegationTokenRecord: tokens.replay_remove_token,
}
"""The function for each record type that changes the image.

`MetadataDelta` handles transactions and NoOpRecord itself.
"""


class MetadataDelta:
    """Records replayed above `base`.

    `changes` shows subscribers the differences; `build()` makes the resulting image.
    """

    def __init__(self, base: MetadataImage) -> None:
        """Start without changes: the delta builds an image that equals `base`."""
        self.base = base
        self.offset = base.offset
        self.epoch = base.epoch
        self.changes = Changes.above(base)
        self._before_transaction: Changes | None = None

    @classmethod
    def from_nothing(cls, image: MetadataImage) -> MetadataDelta:
        """Return a delta from the empty image to `image`, for a subscriber that has received nothing yet."""
        delta = cls(EMPTY_IMAGE)
        delta.offset = image.offset
        delta.epoch = image.epoch
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
        changes.acls.changes.update(image.acls)
        changes.scram.changes.update(image.scram)
        changes.tokens.changes.update(image.tokens)
        return delta

    @property
    def in_transaction(self) -> bool:
        """True between BeginTransaction and its end (KIP-868). No image may be published then."""
        return self._before_transaction is not None

    @property
    def is_empty(self) -> bool:
        return self.offset == self.base.offset

    def replay(self, offset: int, epoch: int, record: r.MetadataRecord) -> None:
        """Apply the record at `offset`, which was written in `epoch`.

        Raise UnsupportedMetadata if this version does not support its type. Raise InconsistentMetadata if it
        contradicts the records before it.
        """
        replay = REPLAY.get(type(record))
        try:
            if replay is not None:
                replay(self.changes, record)
            else:
                self._replay_control(offset, record)
        except InconsistentMetadata as error:
            raise InconsistentMetadata(f"metadata log, offset {offset}: {error}") from None
        self.offset = offset
        self.epoch = epoch

    def _replay_control(self, offset: int, record: r.MetadataRecord) -> None:
        """Apply a record that does not change the image: begin or end of a metadata transaction (KIP-868), NoOpRecord.

        Kafka writes NoOpRecord so that the offset of an idle log advances.
        """
        if isinstance(record, r.BeginTransactionRecord):
            if self._before_transaction is not None:
                raise InconsistentMetadata("BeginTransactionRecord within another metadata transaction")
            self._before_transaction = self.changes.copy()
        elif isinstance(record, r.EndTransactionRecord):
            if self._before_transaction is None:
                raise InconsistentMetadata("EndTransactionRecord without a BeginTransactionRecord before it")
            self._before_transaction = None
        elif isinstance(record, r.AbortTransactionRecord):
            if self._before_transaction is None:
                raise InconsistentMetadata("AbortTransactionRecord without a BeginTransactionRecord before it")
            self.changes = self._before_transaction
            self._before_transaction = None
        elif not isinstance(record, r.NoOpRecord):
            raise UnsupportedMetadata(
                f"metadata record {type(record).__name__} at offset {offset} is not supported by this version"
            )

    def skip_to(self, offset: int, epoch: int) -> None:
        """Advance to an offset without metadata (a control record)."""
        self.offset = offset
        self.epoch = epoch

    def build(self) -> MetadataImage:
        """Return the image after all replayed records."""
        changes = self.changes
        by_id = changes.topics.copy()
        by_name = changes.names.copy()
        for topic_id, partitions in changes.partitions.items():
            shell = changes.topics.get(topic_id)
            if shell is not None and partitions.changes:
                built = partitions.build()
                topic = replace(shell, partitions={index: built[index] for index in sorted(built)})
                by_id.put(topic_id, topic)
                by_name.put(topic.name, topic)
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            brokers=changes.brokers.build(),
            controllers=changes.controllers.build(),
            topics=by_name.build(),
            topics_by_id=by_id.build(),
            configs=_merged(self.base.configs, changes.configs),
            features=changes.features.build(),
            next_producer_id=changes.next_producer_id,
            client_quotas=_merged(self.base.client_quotas, changes.client_quotas),
            acls=changes.acls.build(),
            scram=changes.scram.build(),
            tokens=changes.tokens.build(),
        )

    # ---- differences, for subscribers -------------------------------------------------------------------------------

    def created_topics(self) -> Iterable[UUID]:
        return [t for t, topic in self.changes.topics.changes.items() if topic and t not in self.base.topics_by_id]

    def deleted_topics(self) -> Iterable[TopicImage]:
        """Return the deleted topics, from `base`."""
        deleted = [t for t, topic in self.changes.topics.changes.items() if topic is None]
        return [self.base.topics_by_id[topic_id] for topic_id in deleted if topic_id in self.base.topics_by_id]

    def changed_partitions(self) -> Iterable[tuple[UUID, int]]:
        """Return (topic id, index) of each new or changed partition, in the order of the records.

        Partitions of deleted topics are left out.
        """
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

    def changed_acls(self) -> Collection[UUID]:
        """Return the ids of new and removed ACLs."""
        return self.changes.acls.changes

    def changed_tokens(self) -> Iterable[str]:
        """Return the ids of new, renewed and removed delegation tokens."""
        return list(self.changes.tokens.changes)

    def changed_features(self) -> Iterable[str]:
        return list(self.changes.features.changes)


def _merged(base: Mapping[K, Mapping[str, V]], changes: Mapping[K, Overlay[str, V]]) -> Mapping[K, Mapping[str, V]]:
    """Return the values of each key after the changes. A key without values is left out."""
    if not changes:
        return base
    built = {key: overlay.build() for key, overlay in changes.items()}
    return {key: values for key, values in {**base, **built}.items() if values}
