"""What the transaction coordinator asks of the cluster, answered from this broker's metadata and its controller."""

from collections.abc import Callable

from cluster.controller.port import BrokerControllerPort
from cluster.image import TRANSACTION_VERSION
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
