"""What Metadata, DescribeTopicPartitions and DescribeCluster say about brokers and partitions, as one listener sees them."""

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.cluster.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's leader as it can be reached, and the replicas that cannot be."""

    error: ErrorCode
    leader: int
    offline: list[int]


class MetadataView:
    """One image through one listener."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self.image = image
        self._reachable = {
            broker.broker_id: endpoint
            for broker in image.brokers.values()
            if not broker.fenced and (endpoint := broker.endpoint(listener)) is not None
        }

    def brokers(self, *, with_fenced: bool = False) -> Iterator[tuple[BrokerImage, Endpoint]]:
        """Brokers that clients can connect to, in order of id; fenced ones by their first endpoint if asked for."""
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            endpoint = self._reachable.get(broker_id)
            if endpoint is None and with_fenced and broker.fenced and broker.endpoints:
                endpoint = broker.endpoints[0]
            if endpoint is not None:
                yield broker, endpoint

    def endpoint(self, broker_id: int) -> Endpoint | None:
        return self._reachable.get(broker_id)

    def partition(self, partition: PartitionImage, *, knows_listeners: bool = True) -> PartitionView:
        """`knows_listeners`: the client has LISTENER_NOT_FOUND among its errors."""
        offline = [replica for replica in partition.replicas if replica not in self._reachable]
        if partition.leader in self._reachable:
            return PartitionView(ErrorCode.NONE, partition.leader, offline)
        leader = self.image.brokers.get(partition.leader)
        alive_elsewhere = leader is not None and not leader.fenced
        error = ErrorCode.LISTENER_NOT_FOUND if alive_elsewhere and knows_listeners else ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionView(error, NO_LEADER, offline)

    def controller_id(self) -> int:
        """A broker that takes what is meant for the controller: any live one does, the first is named."""
        return min(self._reachable, default=-1)
