"""Which replica a consumer is sent to (KIP-392): `replica.selector.class` with the rack that the consumer names."""

from collections.abc import Mapping
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.cluster.metadata.image import BrokerImage
from odradek.cluster.replication.leader import Replica

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
STAY: Final = -1
"""Read from the leader, which is where the consumer asks."""


def preferred_replica(
    partition: Partition, offset: int, rack: str, brokers: Mapping[int, BrokerImage], listener: str
) -> int:
    """The broker that a consumer in `rack` should read `offset` from, or STAY.

    An in-sync follower in that rack that has the offset, and of several the one that has most; the leader, if it is in the rack
    itself. `listener` is where the consumer is connected: who has no address there is out of the question.
    """
    term = partition.leader_term
    if term is None or not rack:
        return STAY
    replicas = term.replicas
    own = brokers.get(replicas.broker_id)
    if own is not None and own.rack == rack:
        return STAY
    near = [
        each
        for each in replicas.followers.values()
        if _may_serve(each, offset, rack, brokers.get(each.broker_id), listener)
    ]
    if not near:
        return STAY
    return max(near, key=lambda each: (each.log_end, each.caught_up_ms, each.broker_id)).broker_id


def _may_serve(replica: Replica, offset: int, rack: str, broker: BrokerImage | None, listener: str) -> bool:
    if broker is None or broker.fenced or broker.rack != rack or broker.endpoint(listener) is None:
        return False
    return replica.in_sync and replica.log_start <= offset <= replica.log_end
