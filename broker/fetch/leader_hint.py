"""Who leads instead: the hint that goes with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951)."""

from dataclasses import dataclass

from odradek.cluster.metadata.image import NO_LEADER, Endpoint, MetadataImage


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader that the metadata log names; `endpoint` is None when it has no address on the client's listener."""

    leader_id: int
    leader_epoch: int
    endpoint: Endpoint | None
    rack: str | None


def leader_hint(image: MetadataImage, listener: str, topic: str, index: int) -> LeaderHint | None:
    """Return the leader, with its address on `listener`; None for a partition that `image` does not have."""
    partition = image.partition(topic, index)
    if partition is None:
        return None
    broker = None if partition.leader == NO_LEADER else image.brokers.get(partition.leader)
    endpoint = None
    if broker is not None and not broker.fenced:
        endpoint = broker.endpoint(listener)
    return LeaderHint(partition.leader, partition.leader_epoch, endpoint, broker.rack if broker else None)
