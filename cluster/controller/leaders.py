"""Who leads when brokers come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cluster.controller.configs import allows_unclean_election, min_in_sync
from cluster.controller.election import Election, Rules, next_change
from cluster.controller.state import Notice
from cluster.image import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster.controller.state import ControllerState
    from cluster.image import PartitionImage, TopicImage
    from cluster.records import MetadataRecord

NOBODY: Final = -1
NAMED_MAX: Final = 10
"""Partitions that one line of the log names."""
LOST_REMEDY: Final = (
    "start broker {} with its former data directory; or give up the records that no other replica has:"
    " kafka-leader-election --election-type unclean, or delete the topic"
)


def holds_replica(state: ControllerState, partition: PartitionImage, broker_id: int) -> bool:
    """Is the directory that the replica was put in among those that its broker has registered?"""
    if broker_id not in partition.replicas:
        return False
    directory = partition.directories[partition.replicas.index(broker_id)]
    broker = state.image.brokers.get(broker_id)
    if broker is None or directory == DIRECTORY_LOST:
        return False
    return directory in {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING} or directory in broker.directories


def rules_for(
    state: ControllerState,
    topic: str,
    partition: PartitionImage,
    *,
    election: Election | None = None,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean_shutdown: int = NOBODY,
) -> Rules:
    """`removed` and `added`: brokers that count as gone and as active already. `election` None: as the topic allows."""
    if election is None:
        election = Election.UNCLEAN if allows_unclean_election(state, topic) else Election.ONLINE

    def is_alive(broker_id: int) -> bool:
        if broker_id in {removed, unclean_shutdown}:
            return False
        return broker_id == added or state.is_active(broker_id)

    return Rules(
        can_lead=lambda broker_id: is_alive(broker_id) and holds_replica(state, partition, broker_id),
        is_alive=is_alive,
        default_directory=state.default_directory,
        min_isr=min_in_sync(state, topic),
        elr=state.elr_enabled,
        election=election,
        unclean_shutdown=() if unclean_shutdown == NOBODY else (unclean_shutdown,),
    )


def partitions_with(
    state: ControllerState, matches: Callable[[PartitionImage], bool]
) -> Iterable[tuple[TopicImage, PartitionImage]]:
    for topic in state.image.topics.values():
        for partition in topic.partitions.values():
            if matches(partition):
                yield topic, partition


def leads_any(state: ControllerState, broker_id: int) -> bool:
    return next(iter(partitions_with(state, lambda partition: partition.leader == broker_id)), None) is not None


def remove_broker(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """The broker is no longer alive, or about to go: it leaves every ISR and leads nothing."""
    affected = partitions_with(state, lambda partition: broker_id in partition.isr or partition.leader == broker_id)
    return _changes(state, affected, removed=broker_id)


def remove_unclean(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """The broker may have lost records that it had: it is not eligible to lead before it has caught up again (KIP-966)."""
    affected = partitions_with(state, lambda partition: broker_id in (*partition.isr, *partition.elr))
    return _changes(state, affected, unclean_shutdown=broker_id)


def remove_unregistered(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """The broker will not come back."""
    affected = partitions_with(state, lambda partition: broker_id in (*partition.isr, *partition.elr))
    return _changes(state, affected, removed=broker_id)


def add_broker(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """The broker is alive again: it may lead what has no leader."""
    affected = partitions_with(state, lambda partition: not partition.has_leader)
    return _changes(state, affected, added=broker_id)


def lost_replicas(state: ControllerState, broker_id: int) -> Notice | None:
    """What a broker that comes back would have to lead, were it not that the directory with the records is gone."""

    def waits_for_it(partition: PartitionImage) -> bool:
        held = (*partition.isr, *partition.elr, *partition.last_known_elr)
        return not partition.has_leader and broker_id in held and not holds_replica(state, partition, broker_id)

    waiting = [
        f"{topic.name}-{partition.index}"
        for topic, partition in partitions_with(state, waits_for_it)
        if not allows_unclean_election(state, topic.name)
    ]
    if not waiting:
        return None
    named = ", ".join(waiting[:NAMED_MAX]) + (", ..." if len(waiting) > NAMED_MAX else "")
    return Notice(
        "partitions have no leader: the broker that was the last in sync has come back without the directory that held them",
        (
            ("broker", broker_id),
            ("partitions", named),
            ("count", len(waiting)),
            ("remedy", LOST_REMEDY.format(broker_id)),
        ),
    )


def _changes(
    state: ControllerState,
    affected: Iterable[tuple[TopicImage, PartitionImage]],
    *,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean_shutdown: int = NOBODY,
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for topic, partition in affected:
        rules = rules_for(state, topic.name, partition, removed=removed, added=added, unclean_shutdown=unclean_shutdown)
        isr = tuple(broker_id for broker_id in partition.isr if broker_id not in {removed, unclean_shutdown})
        record = next_change(topic.topic_id, partition, replace(partition, isr=isr), rules)
        if record is not None:
            records.append(record)
    return records
