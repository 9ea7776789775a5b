"""Replay of the records of topics and partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.metadata.changes import Overlay
from odradek.cluster.metadata.errors import InconsistentMetadata
from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED, RESOURCE_TOPIC, PartitionImage, TopicImage
from odradek.cluster.metadata.partition_change import changed_partition

if TYPE_CHECKING:
    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes

EPOCH_MAX: Final = 2**31 - 1
"""Maximum leader epoch and partition epoch: records contain 32 bits."""


def replay_topic(changes: Changes, record: r.TopicRecord) -> None:
    if changes.names.get(record.name) is not None or changes.topics.get(record.topic_id) is not None:
        raise InconsistentMetadata(f"topic {record.name} or its id {record.topic_id} exists already")
    topic = TopicImage(record.name, record.topic_id, {})
    changes.topics.put(record.topic_id, topic)
    changes.names.put(record.name, topic)
    changes.partitions[record.topic_id] = Overlay({})


def replay_remove_topic(changes: Changes, record: r.RemoveTopicRecord) -> None:
    topic = changes.topics.get(record.topic_id)
    if topic is None:
        raise InconsistentMetadata(f"no topic has the id {record.topic_id}")
    changes.topics.remove(record.topic_id)
    changes.names.remove(topic.name)
    changes.partitions.pop(record.topic_id, None)
    configs = changes.configs_of((RESOURCE_TOPIC, topic.name))
    for name in configs.build():
        configs.remove(name)


def replay_partition(changes: Changes, record: r.PartitionRecord) -> None:
    replicas = tuple(record.replicas)
    if record.directories and len(record.directories) != len(replicas):
        raise InconsistentMetadata(f"{len(record.directories)} directories for {len(replicas)} replicas of a partition")
    changes.partitions_of(record.topic_id).put(
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


def replay_partition_change(changes: Changes, record: r.PartitionChangeRecord) -> None:
    partitions = changes.partitions_of(record.topic_id)
    old = partitions.get(record.partition_id)
    if old is None:
        raise InconsistentMetadata(f"topic {record.topic_id} has no partition {record.partition_id}")
    changed = changed_partition(old, record)
    if len(changed.directories) != len(changed.replicas):
        raise InconsistentMetadata(
            f"{len(changed.directories)} directories for {len(changed.replicas)} replicas of a partition"
        )
    if max(changed.leader_epoch, changed.partition_epoch) > EPOCH_MAX:
        raise InconsistentMetadata(f"leader epoch or partition epoch of {record.partition_id} exceeds {EPOCH_MAX}")
    partitions.put(record.partition_id, changed)


def replay_clear_elr(changes: Changes, record: r.ClearElrRecord) -> None:
    """Clear the eligible leader replicas (KIP-966) of one topic, or of all topics if the record has no name."""
    names = [record.topic_name] if record.topic_name else list(changes.names.build())
    for name in names:
        topic = changes.names.get(name)
        if topic is None:
            raise InconsistentMetadata(f"no topic has the name {name}")
        partitions = changes.partitions_of(topic.topic_id)
        for index, partition in partitions.build().items():
            if partition.elr or partition.last_known_elr:
                partitions.put(index, replace(partition, elr=(), last_known_elr=()))
