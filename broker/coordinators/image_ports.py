"""What the coordinators ask of the cluster, answered from this broker's metadata and its controller."""

from collections.abc import Callable, Sequence
from uuid import UUID

from odradek.broker.quorum.controller_client import ControllerClient
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import GROUP_VERSION, TRANSACTION_VERSION, MetadataImage, TopicImage
from odradek.coordinator.group.ports import TopicInfo


class ImageLeaders:
    """`odradek.coordinator.txn.ports.Leaders`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self._metadata.image.leader_of(topic, partition)


class ImageFeatures:
    """`odradek.coordinator.txn.ports.FeatureLevels` and `odradek.coordinator.group.ports.FeatureLevels`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def transaction_version(self) -> int:
        return self._metadata.image.feature(TRANSACTION_VERSION)

    def group_version(self) -> int:
        return self._metadata.image.feature(GROUP_VERSION)


class ImageTopics:
    """`odradek.coordinator.group.ports.Topics`."""

    def __init__(self, metadata: MetadataCache) -> None:
        """`on_metadata` has to be subscribed to `metadata`."""
        self._metadata = metadata
        self._version = metadata.image.offset
        self._known: dict[UUID, TopicInfo] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Has anything changed that an assignment may depend on? Most changes are of leaders and of in-sync replicas."""
        if delta.changed_brokers():  # a rack may be another one
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
        """The offset of the last change in the metadata log."""
        return self._version

    def by_name(self, name: str) -> TopicInfo | None:
        topic = self._metadata.image.topic(name)
        return None if topic is None else self._info(topic)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        topic = self._metadata.image.topic_by_id(UUID(bytes=topic_id))
        return None if topic is None else self._info(topic)

    def names(self) -> Sequence[str]:
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
    """A topic that holds the state of coordinators, as the metadata has it."""

    def __init__(self, name: str, metadata: MetadataCache, partitions: int) -> None:
        """`partitions`: how many it will have where it is not there yet."""
        self._name = name
        self._metadata = metadata
        self._partitions = partitions
        self._image: MetadataImage | None = None
        self._leaders: tuple[int, ...] = ()

    def partitions(self) -> int:
        """The partition of a name must not move: once the topic is there, its own size counts."""
        return len(self.leaders()) or self._partitions

    def leads(self, node_id: int, shard: int) -> bool:
        leaders = self.leaders()
        return shard < len(leaders) and leaders[shard] == node_id

    def leaders(self) -> tuple[int, ...]:
        """Who leads each partition, NO_LEADER for nobody; empty while the topic is not there."""
        image = self._metadata.image
        if image is not self._image:
            topic = image.topic(self._name)
            self._leaders = () if topic is None else tuple(each.leader for each in topic.partitions.values())
            self._image = image
        return self._leaders


class ProducerIdBlocks:
    """Blocks of producer ids for this broker, as long as its registration holds."""

    def __init__(self, controller: ControllerClient, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> tuple[int, int]:
        """(first id, length). Raises Refusal."""
        block = await self._controller.allocate_producer_ids(self._node_id, self._broker_epoch())
        return block.first, block.length
