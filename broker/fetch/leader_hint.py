"""Find the current leader for responses with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951)."""

from odradek.cluster.metadata.image import Endpoint, MetadataImage
from odradek.frozen import frozen_dataclass
from odradek.protocol.special_values import NO_LEADER


@frozen_dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader of one partition in the metadata image."""

    leader_id: int
    leader_epoch: int
    endpoint: Endpoint | None
    """Address of the leader on the client's listener; None if the leader is fenced or has no such listener."""
    rack: str | None


def leader_hint(image: MetadataImage, listener: str, topic: str, index: int) -> LeaderHint | None:
    """Return the leader of a partition, with its address on `listener`; None if `image` lacks the partition."""
    partition = image.partition(topic, index)
    if partition is None:
        return None
    broker = None if partition.leader == NO_LEADER else image.brokers.get(partition.leader)
    endpoint = None
    if broker is not None and not broker.fenced:
        endpoint = broker.endpoint(listener)
    return LeaderHint(partition.leader, partition.leader_epoch, endpoint, broker.rack if broker else None)
