"""Implement the cluster ports of the coordinators with this broker's metadata image and the controller."""

from collections.abc import Callable, Sequence
from uuid import UUID

from odradek.broker.quorum.controller_client import ControllerClient
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import GROUP_VERSION, TRANSACTION_VERSION, MetadataImage, TopicImage
from odradek.coordinator.group.ports import TopicInfo


class ImageLeaders:
    """Leaders of partitions in the metadata image (`odradek.coordinator.txn.ports.Leaders`)."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the leader of a partition; None if the partition does not exist or has no leader."""
        return self._metadata.image.leader_of(topic, partition)


class ImageFeatures:
    """Finalized feature levels in the metadata image (`FeatureLevels` of both coordinators)."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def transaction_version(self) -> int:
        """Return the level of transaction.version."""
        return self._metadata.image.feature(TRANSACTION_VERSION)

    def group_version(self) -> int:
        """Return the level of group.version."""
        return self._metadata.image.feature(GROUP_VERSION)


class ImageTopics:
    """Topics of the metadata image for the group coordinator (`odradek.coordinator.group.ports.Topics`)."""

    def __init__(self, metadata: MetadataCache) -> None:
        """The owner of `metadata` calls `on_metadata` for each change."""
        self._metadata = metadata
        self._version = metadata.image.offset
        self._known: dict[UUID, TopicInfo] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Advance `version` if a change concerns assignments: topics, replicas or racks, but not leaders or ISRs."""
        if delta.changed_brokers():  # A rack may have changed.
            self._known.clear()
            self._version = image.offset
        changed = dict.fromkeys(topic.topic_id for topic in delta.deleted_topics())
        for topic_id, index in delta.changed_partitions():
            before, after = delta.base.topic_by_id(topic_id), image.topic_by_id(topic_id)
            old = None if before is None else before.partitions.get(index)
            if old is None or (after is not None and old.replicas != after.partitions[index].replicas):
                changed[topic_id] = None
        for topic_id in changed:
            self._known.pop(topic_id, None)
            self._version = image.offset

    def version(self) -> int:
        """Return the offset in the metadata log of the last change that concerns assignments."""
        return self._version

    def by_name(self, name: str) -> TopicInfo | None:
        """Return a topic by name, or None if it does not exist."""
        topic = self._metadata.image.topic(name)
        return None if topic is None else self._info(topic)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return a topic by the bytes of its id, or None if it does not exist."""
        topic = self._metadata.image.topic_by_id(UUID(bytes=topic_id))
        return None if topic is None else self._info(topic)

    def names(self) -> Sequence[str]:
        """Return the names of all topics."""
        return list(self._metadata.image.topics)

    def _info(self, topic: TopicImage) -> TopicInfo:
        info = self._known.get(topic.topic_id)
        if info is None:
            brokers = self._metadata.image.brokers
            racks = tuple(
                tuple(
                    rack
                    for replica in topic.partitions[index].replicas
                    if replica in brokers and (rack := brokers[replica].rack) is not None
                )
                for index in sorted(topic.partitions)
            )
            info = TopicInfo(topic.topic_id.bytes, topic.name, len(topic.partitions), racks if any(racks) else ())
            self._known[topic.topic_id] = info
        return info


class CoordinatorTopic:
    """The internal topic of a coordinator in the metadata image."""

    def __init__(self, name: str, metadata: MetadataCache, partitions: int) -> None:
        """`partitions` is the number of partitions that the topic gets when it is created."""
        self.name = name
        self._metadata = metadata
        self._partitions = partitions
        self._image: MetadataImage | None = None
        self._leaders: tuple[int, ...] = ()
        self._leader_epoch_max = 0

    def partitions(self) -> int:
        """Return the number of partitions that maps ids to partitions.

        It is that of the topic if it exists, even if the property differs: an id must not move to another partition.
        """
        return len(self.leaders()) or self._partitions

    def leads(self, node_id: int, shard: int) -> bool:
        """Return True if broker `node_id` leads partition `shard` of the topic."""
        leaders = self.leaders()
        return shard < len(leaders) and leaders[shard] == node_id

    def leaders(self) -> tuple[int, ...]:
        """Return the leader of each partition, or NO_LEADER; an empty tuple while the topic does not exist."""
        self._read_image()
        return self._leaders

    def leader_epoch_max(self) -> int:
        """Return the highest leader epoch of the partitions, or 0: the highest epoch that a coordinator can have."""
        self._read_image()
        return self._leader_epoch_max

    def _read_image(self) -> None:
        """Read the partitions of the topic, if the metadata image has changed."""
        image = self._metadata.image
        if image is not self._image:
            topic = image.topic(self.name)
            partitions = () if topic is None else tuple(topic.partitions.values())
            self._leaders = tuple(partition.leader for partition in partitions)
            self._leader_epoch_max = max((partition.leader_epoch for partition in partitions), default=0)
            self._image = image


class ProducerIdBlocks:
    """Allocation of producer id blocks for this broker (KIP-730)."""

    def __init__(self, controller: ControllerClient, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> tuple[int, int]:
        """Return first id and length of a new block. Raise Refusal if the controller refuses, or cannot be reached."""
        block = await self._controller.allocate_producer_ids(self._node_id, self._broker_epoch())
        return block.first, block.length
