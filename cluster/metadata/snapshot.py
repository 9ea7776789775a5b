"""The metadata image as the records of a snapshot (KIP-630, KIP-631), and the difference between two images.

The order is Kafka's: feature levels first, because they determine the versions of the other records; then brokers,
controllers, topics with their partitions, configurations, client quotas, the next producer id, ACLs, SCRAM credentials,
delegation tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.changes import Overlay
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import METADATA_VERSION
from odradek.cluster.metadata.replay.acls import acl_record
from odradek.cluster.metadata.replay.scram import scram_record
from odradek.cluster.metadata.replay.tokens import token_record
from odradek.cluster.raft.batches import encode_records, encode_snapshot_footer, encode_snapshot_header
from odradek.protocol.schema import replace_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from odradek.cluster.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionImage, TopicImage
    from odradek.cluster.raft.messages import EpochEnd

RECORDS_PER_BATCH_MAX: Final = 200
"""Maximum records per batch. A batch is encoded in one turn of the event loop, which takes about 5 ms."""
BATCH_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of the records of a batch, unless it has one record. Readers refuse batches of more than 8 MiB, and a
record of a configuration or a quota can have 64 KiB."""
UNKNOWN_BROKER: Final = -1
"""Broker id and epoch of the ProducerIdsRecord. The image does not have the broker that received the last block."""
K = TypeVar("K")
V = TypeVar("V")


def snapshot_batches(
    image: MetadataImage, snapshot: EpochEnd, *, last_contained_ms: int, now_ms: int
) -> Iterator[bytes]:
    """Encode a snapshot, batch by batch: header, records, footer. Times are wall-clock milliseconds."""
    epoch = snapshot.epoch
    yield encode_snapshot_header(epoch=epoch, last_contained_ms=last_contained_ms, now_ms=now_ms)
    offset = 1
    for values in _batched(map(r.encode_record, image_records(image))):
        yield encode_records([(None, value) for value in values], base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += len(values)
    yield encode_snapshot_footer(base_offset=offset, epoch=epoch, now_ms=now_ms)


def _batched(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Divide records by their number and by their bytes."""
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and (len(batch) == RECORDS_PER_BATCH_MAX or size + len(value) > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value)
    if batch:
        yield batch


def image_records(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    """Return the records that lead from the empty image to `image`."""
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    yield from (r.FeatureLevelRecord(name, image.features[name]) for name in names)
    for broker in image.brokers.values():
        yield from _broker_records(broker)
    yield from (_controller_record(controller) for controller in image.controllers.values())
    for topic in image.topics.values():
        yield r.TopicRecord(topic.name, topic.topic_id)
        yield from (_partition_record(topic.topic_id, partition) for partition in topic.partitions.values())
    for (resource_type, resource_name), values in image.configs.items():
        yield from (r.ConfigRecord(resource_type, resource_name, name, value) for name, value in values.items())
    for entity, quotas in image.client_quotas.items():
        named = [r.ClientQuotaEntity(kind, name) for kind, name in entity]
        yield from (r.ClientQuotaRecord(named, key, value) for key, value in quotas.items())
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(UNKNOWN_BROKER, UNKNOWN_BROKER, image.next_producer_id)
    yield from (acl_record(acl_id, acl) for acl_id, acl in image.acls.items())
    yield from (scram_record(key, credential) for key, credential in image.scram.items())
    yield from (token_record(token_id, token) for token_id, token in image.tokens.items())


def _broker_records(broker: BrokerImage) -> Iterator[r.RegisterBrokerRecord]:
    """Yield one registration for each epoch of the lineage, then the present one: replay derives the lineage again."""
    record = _broker_record(broker)
    yield from (replace_fields(record, broker_epoch=epoch, fenced=True) for epoch in broker.lineage)
    yield record


def _broker_record(broker: BrokerImage) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[r.BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in broker.endpoints],
        features=[r.BrokerFeature(name, levels.min, levels.max) for name, levels in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=list(broker.cordoned_directories) or None,
    )


def _controller_record(controller: ControllerImage) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[r.ControllerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in controller.endpoints],
        features=[r.ControllerFeature(name, levels.min, levels.max) for name, levels in controller.features.items()],
    )


def _partition_record(topic_id: UUID, partition: PartitionImage) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def delta_between(base: MetadataImage, image: MetadataImage) -> MetadataDelta:
    """Return the delta from `base` to `image`, for subscribers after a snapshot has replaced the records in between."""
    delta = MetadataDelta(base)
    delta.offset = image.offset
    delta.epoch = image.epoch
    changes = delta.changes
    changes.brokers.changes = _differences(base.brokers, image.brokers)
    changes.controllers.changes = _differences(base.controllers, image.controllers)
    changes.features.changes = _differences(base.features, image.features)
    changes.next_producer_id = image.next_producer_id
    for topic_id, topic in _differences(base.topics_by_id, image.topics_by_id).items():
        if topic is None:
            changes.topics.remove(topic_id)
            changes.names.remove(base.topics_by_id[topic_id].name)
    for topic in image.topics_by_id.values():
        _compare_topic(delta, topic)
    for resource in [*base.configs, *(new for new in image.configs if new not in base.configs)]:
        before = base.configs.get(resource, {})
        if different := _differences(before, image.configs.get(resource, {})):
            changes.configs[resource] = Overlay(before, different)
    for entity in [*base.client_quotas, *(new for new in image.client_quotas if new not in base.client_quotas)]:
        held = base.client_quotas.get(entity, {})
        if changed := _differences(held, image.client_quotas.get(entity, {})):
            changes.client_quotas[entity] = Overlay(held, changed)
    changes.acls.changes = _differences(base.acls, image.acls)
    changes.scram.changes = _differences(base.scram, image.scram)
    changes.tokens.changes = _differences(base.tokens, image.tokens)
    return delta


def _compare_topic(delta: MetadataDelta, topic: TopicImage) -> None:
    known = delta.base.topics_by_id.get(topic.topic_id)
    if known is None:
        shell = replace(topic, partitions={})
        delta.changes.topics.put(topic.topic_id, shell)
        delta.changes.names.put(topic.name, shell)
    before = {} if known is None else known.partitions
    if known is None or before != topic.partitions:
        delta.changes.partitions[topic.topic_id] = Overlay(before, _differences(before, topic.partitions))


def _differences(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V | None]:
    """Return the changed and new values, and None for each removed key."""
    gone: dict[K, V | None] = {key: None for key in before if key not in after}
    return gone | {key: value for key, value in after.items() if before.get(key) != value}
