"""Select the replica that a consumer should fetch from, by its rack and `replica.selector.class` (KIP-392)."""

from collections.abc import Mapping
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.cluster.metadata.image import BrokerImage
from odradek.cluster.replication.leader import Replica

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
READ_FROM_LEADER: Final = -1
"""The preferred read replica in a response that does not redirect the consumer."""


def preferred_replica(
    partition: Partition, offset: int, rack: str, brokers: Mapping[int, BrokerImage], listener: str
) -> int:
    """Return the broker that a consumer in `rack` should fetch `offset` from, or READ_FROM_LEADER.

    Candidates are the in-sync followers in `rack` that have the offset, with an address on `listener`, the listener of
    the consumer's connection. The candidate with the highest log end offset is preferred. A leader in `rack` itself is
    preferred to all followers (RackAwareReplicaSelector).
    """
    term = partition.leader_term
    if term is None or not rack:
        return READ_FROM_LEADER
    replicas = term.replicas
    own = brokers.get(replicas.broker_id)
    if own is not None and own.rack == rack:
        return READ_FROM_LEADER
    candidates = [
        replica
        for replica in replicas.followers.values()
        if _is_candidate(replica, offset, rack, brokers.get(replica.broker_id), listener)
    ]
    if not candidates:
        return READ_FROM_LEADER
    return max(candidates, key=lambda replica: (replica.log_end, replica.caught_up_ms, replica.broker_id)).broker_id


def _is_candidate(replica: Replica, offset: int, rack: str, broker: BrokerImage | None, listener: str) -> bool:
    if broker is None or broker.fenced or broker.rack != rack or broker.endpoint(listener) is None:
        return False
    return replica.in_sync and replica.log_start <= offset <= replica.log_end
