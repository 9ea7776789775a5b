"""View of a metadata image through one listener, for Metadata, DescribeTopicPartitions and DescribeCluster."""

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.cluster.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import NO_LEADER


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Leader of a partition if clients can connect to it, and the replicas that they cannot connect to."""

    error: ErrorCode
    leader: int
    offline: list[int]


class MetadataView:
    """Brokers and partition leaders of one metadata image that clients of one listener can connect to."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self.image = image
        self._reachable = {
            broker.broker_id: endpoint
            for broker in image.brokers.values()
            if not broker.fenced and (endpoint := broker.endpoint(listener)) is not None
        }

    def brokers(self, *, with_fenced: bool = False) -> Iterator[tuple[BrokerImage, Endpoint]]:
        """Yield (broker, endpoint) for the brokers that clients can connect to, in the order of broker ids.

        `with_fenced` adds fenced brokers. Their endpoint is the first one that they registered.
        """
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            endpoint = self._reachable.get(broker_id)
            if endpoint is None and with_fenced and broker.fenced and broker.endpoints:
                endpoint = broker.endpoints[0]
            if endpoint is not None:
                yield broker, endpoint

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the broker's endpoint on the listener; None if it is unknown, fenced, or not on the listener."""
        return self._reachable.get(broker_id)

    def partition(self, partition: PartitionImage, *, knows_listeners: bool = True) -> PartitionView:
        """Return the view of `partition`.

        The error is NONE if clients can connect to the leader. It is LISTENER_NOT_FOUND if the leader is active but has
        no endpoint on this listener, and `knows_listeners` (the client knows that error). In all other cases it is
        LEADER_NOT_AVAILABLE.
        """
        offline = [replica for replica in partition.replicas if replica not in self._reachable]
        if partition.leader in self._reachable:
            return PartitionView(ErrorCode.NONE, partition.leader, offline)
        leader = self.image.brokers.get(partition.leader)
        active = leader is not None and not leader.fenced
        error = ErrorCode.LISTENER_NOT_FOUND if active and knows_listeners else ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionView(error, NO_LEADER, offline)

    def controller_id(self) -> int:
        """Return the id of the lowest broker that clients can connect to; -1 if there is none.

        Each broker forwards requests for the controller (KIP-590), so any broker can stand for it.
        """
        return min(self._reachable, default=-1)
