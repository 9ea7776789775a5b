"""Which brokers get the replicas of new partitions, and whether a placement made by hand can be used. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odradek.cluster.metadata.image import BrokerImage, MetadataImage
    from odradek.cluster.randomness import Randomness


def place(
    image: MetadataImage, rng: Randomness, *, first_partition: int, partitions: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first.

    In order of importance: a partition stands in as many racks as it can; active brokers come before those that are fenced or
    about to leave, and lead alone; leaders are spread evenly over them, and so are followers. Active brokers stand in a ring in
    which neighbours have different racks where possible. Partition p is led by the one p places behind a random one; its
    followers are the next ones, and further along the ring with every round, so that the load of a broker that dies is shared by
    all. Raises Refusal(INVALID_REPLICATION_FACTOR) with Kafka's words.
    """
    brokers = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
    active = _rack_ring([broker for broker in brokers if broker.is_active])
    reason = None
    if replication_factor > len(brokers):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)}"
            " broker(s) are registered or some brokers have all their log directories cordoned."
        )
    elif not active:
        reason = "All brokers are currently fenced or in controlled shutdown."
    if reason is not None:
        text = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    inactive = _rack_ring([broker for broker in brokers if not broker.is_active])
    start = rng.randrange(len(active))
    rows = []
    for number in range(first_partition, first_partition + partitions):
        lead, turn = (start + number) % len(active), (start + number) // len(active)
        others = active[lead + 1 :] + active[:lead]
        shift = turn % len(others) if others else 0
        followers = _spread(active[lead], [*others[shift:], *others[:shift], *inactive], replication_factor - 1)
        rows.append((active[lead].broker_id, *(broker.broker_id for broker in followers)))
    return rows


def _spread(leader: BrokerImage, candidates: list[BrokerImage], count: int) -> list[BrokerImage]:
    """`count` of the candidates, each time the first one whose rack has the fewest replicas so far."""
    used: Counter[str | None] = Counter([leader.rack])
    chosen = []
    for _ in range(count):
        broker = min(candidates, key=lambda candidate: used[candidate.rack])
        candidates.remove(broker)
        chosen.append(broker)
        used[broker.rack] += 1
    return chosen


def _rack_ring(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """One broker of every rack, then the next of every rack; racks and brokers in ascending order."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker)
    rows = [racks[name] for name in sorted(racks)]
    depth = max((len(row) for row in rows), default=0)
    return [row[place] for place in range(depth) for row in rows if place < len(row)]


def check_manual(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises Refusal(INVALID_REPLICA_ASSIGNMENT). `replication_factor`: what the partitions before it have."""
    if not replicas:
        raise _bad("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _bad(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id == previous:
            raise _bad(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def active_replicas(image: MetadataImage, partition: int, replicas: Sequence[int]) -> tuple[int, ...]:
    """The first ISR of a new partition. Raises Refusal(INVALID_REPLICA_ASSIGNMENT) when it would be empty."""
    isr = tuple(broker_id for broker_id in replicas if image.brokers[broker_id].is_active)
    if not isr:
        raise _bad(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in"
            " controlled shutdown."
        )
    return isr


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
