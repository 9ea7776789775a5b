"""What the transaction coordinator asks of the cluster, answered from this broker's metadata and its controller."""

from collections.abc import Callable

from broker.topic_names import TRANSACTION_STATE
from cluster.controller.port import BrokerControllerPort
from cluster.image import TRANSACTION_VERSION, MetadataImage
from cluster.metadata import MetadataCache


class ImageLeaders:
    """`coordinator.txn.ports.Leaders`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self._metadata.image.leader_of(topic, partition)


class ImageFeatures:
    """`coordinator.txn.ports.FeatureLevels`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def transaction_version(self) -> int:
        return self._metadata.image.feature(TRANSACTION_VERSION)


class TransactionTopic:
    """`__transaction_state` as the metadata has it."""

    def __init__(self, metadata: MetadataCache, partitions: int) -> None:
        """`partitions`: how many it will have where it is not there yet."""
        self._metadata = metadata
        self._partitions = partitions
        self._image: MetadataImage | None = None
        self._leaders: tuple[int, ...] = ()

    def partitions(self) -> int:
        """The partition of an id must not move: once the topic is there, its own size counts."""
        return len(self.leaders()) or self._partitions

    def leads(self, node_id: int, shard: int) -> bool:
        leaders = self.leaders()
        return shard < len(leaders) and leaders[shard] == node_id

    def leaders(self) -> tuple[int, ...]:
        """Who leads each partition, NO_LEADER for nobody; empty while the topic is not there."""
        image = self._metadata.image
        if image is not self._image:
            topic = image.topic(TRANSACTION_STATE)
            self._leaders = () if topic is None else tuple(each.leader for each in topic.partitions.values())
            self._image = image
        return self._leaders


class ProducerIdBlocks:
    """Blocks of producer ids for this broker, as long as its registration holds."""

    def __init__(self, controller: BrokerControllerPort, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> tuple[int, int]:
        """(first id, length). Raises Refusal."""
        block = await self._controller.allocate_producer_ids(self._node_id, self._broker_epoch())
        return block.first, block.length
