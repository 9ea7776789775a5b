"""Placement of the replicas of new partitions, and validation of manual assignments."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from odradek.cluster.controller.state import ControllerState
    from odradek.cluster.metadata.image import BrokerImage, MetadataImage
    from odradek.cluster.randomness import Randomness


def place(
    image: MetadataImage,
    rng: Randomness,
    *,
    first_partition: int,
    partitions: int,
    replication_factor: int,
    draining: Container[int] = (),
) -> list[tuple[int, ...]]:
    """Return the replicas of each new partition, the preferred leader first.

    The goals, in order of importance:
    1. A partition has replicas in as many racks as possible.
    2. Active brokers precede inactive ones. Only active brokers lead.
    3. Leaders and followers are distributed evenly over the brokers.

    Active brokers form a ring in which neighbors have different racks where possible. The leader of partition p is p
    places after a random broker. Its followers are the next brokers of the ring, shifted further with each round, so
    that all brokers share the load of a failed one. Brokers in `draining` count as inactive.

    Raise Refusal(INVALID_REPLICATION_FACTOR) with Kafka's message.
    """
    brokers = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
    active = _rack_ring([broker for broker in brokers if broker.is_active and broker.broker_id not in draining])
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
    inactive = _rack_ring([broker for broker in brokers if not broker.is_active or broker.broker_id in draining])
    start = rng.randrange(len(active))
    shifts = max(1, len(active) - 1)
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    rows = []
    for number in range(first_partition, first_partition + partitions):
        turn, lead = divmod(start + number, len(active))
        place = lead, turn % shifts
        row = known.get(place)
        if row is None:
            row = known[place] = _row(active, inactive, *place, replication_factor)
        rows.append(row)
    return rows


def _row(
    active: list[BrokerImage], inactive: list[BrokerImage], lead: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """Return the replicas of the partitions whose leader has the place `lead` in the ring of active brokers."""
    others = active[lead + 1 :] + active[:lead]
    followers = _spread(active[lead], [*others[shift:], *others[:shift], *inactive], replication_factor - 1)
    return active[lead].broker_id, *(broker.broker_id for broker in followers)


def _spread(leader: BrokerImage, candidates: list[BrokerImage], count: int) -> list[BrokerImage]:
    """Return `count` candidates: each time the first one whose rack has the fewest replicas so far."""
    used: Counter[str | None] = Counter([leader.rack])
    chosen = []
    for _ in range(count):
        broker = min(candidates, key=lambda candidate: used[candidate.rack])
        candidates.remove(broker)
        chosen.append(broker)
        used[broker.rack] += 1
    return chosen


def _rack_ring(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """Return one broker of each rack, then the next one of each rack. Racks and brokers are in ascending order."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker)
    rows = [racks[name] for name in sorted(racks)]
    depth = max((len(row) for row in rows), default=0)
    return [row[place] for place in range(depth) for row in rows if place < len(row)]


def check_manual(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raise Refusal(INVALID_REPLICA_ASSIGNMENT) if an operator's assignment of one partition is invalid.

    `replication_factor` is the replication factor of the preceding partitions of the request, None for the first one.
    """
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


def active_replicas(state: ControllerState, partition: int, replicas: Sequence[int]) -> tuple[int, ...]:
    """Return the first ISR of a new partition. Raise Refusal(INVALID_REPLICA_ASSIGNMENT) if it would be empty."""
    isr = tuple(broker_id for broker_id in replicas if state.is_active(broker_id))
    if not isr:
        raise _bad(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in"
            " controlled shutdown."
        )
    return isr


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
