"""Assemble the group coordinator: its shards, and the transaction markers that it applies."""

from collections.abc import Callable
from typing import Final

from odradek.broker.config.groups import GroupSettings
from odradek.broker.config.properties import Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.coordinators.image_ports import CoordinatorTopic, ImageFeatures, ImageTopics
from odradek.broker.coordinators.marker_writer import MarkerWriter
from odradek.broker.coordinators.shard_loader import STANDBY_INTERVAL_MS, CoordinatorShards, leads_open
from odradek.broker.partition.registry import Partitions
from odradek.broker.process.env import Env
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.coordinator.group.commands import DeletedTopic
from odradek.coordinator.group.service import GroupCoordinator
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.runtime.repeated_tasks import repeat
from odradek.runtime.tasks import Spawn

BASE_SEQUENCE: Final = 0
"""Base sequence of every batch of the group coordinator. Kafka's group coordinator writes 0 as well."""


class Groups:
    """The group coordinator of this broker with its shards."""

    def __init__(
        self,
        config: Config,
        env: Env,
        spawn: Spawn,
        *,
        metadata: MetadataCache,
        topic_settings: TopicSettings,
        partitions: Partitions,
        markers: MarkerWriter,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """`on_failure` receives a description and the exception of bugs and failed disks."""
        topic = CoordinatorTopic(CONSUMER_OFFSETS, metadata, config.offsets_topic_num_partitions)
        self._topics = ImageTopics(metadata)
        self.coordinator = GroupCoordinator(
            clock=env.clock,
            configs=GroupSettings(config, metadata, topic_settings.current),
            topics=self._topics,
            features=ImageFeatures(metadata),
            new_id=lambda: str(env.new_uuid()),
            shard_count=topic.partitions,
            is_assigned=lambda shard: leads_open(partitions, topic, config.node_id, shard),
            spawn=spawn,
            on_failure=on_failure,
        )
        shards = CoordinatorShards(
            CONSUMER_OFFSETS,
            self.coordinator,
            partitions,
            spawn,
            env.clock,
            load_bytes=config.offsets_load_buffer_size,
            base_sequence=BASE_SEQUENCE,
        )
        partitions.listen(CONSUMER_OFFSETS, shards)
        markers.apply_with(CONSUMER_OFFSETS, self.coordinator.mark)
        name = "update standby caches of groups"
        spawn(repeat(shards.update_standby, STANDBY_INTERVAL_MS, STANDBY_INTERVAL_MS, spawn, name), name)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changes of topics to the groups. Call it after `Partitions.on_metadata`."""
        self._topics.on_metadata(delta, image)
        deleted = tuple(DeletedTopic(topic.topic_id.bytes, topic.name) for topic in delta.deleted_topics())
        if deleted:
            self.coordinator.topics_deleted(deleted)
