"""Partitions: new ones, and who leads them when brokers come and go."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from cluster.controller import placement
from cluster.controller.configs import allows_unclean_election
from cluster.controller.port import NewPartitions, TopicResult
from cluster.controller.state import ControllerState, Verdict
from cluster.image import NO_LEADER, RECOVERING, PartitionImage, TopicImage
from cluster.records import MetadataRecord, PartitionChangeRecord, PartitionRecord
from protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from cluster.controller.commands import CreatePartitions

NOBODY: Final = -1
PARTITIONS_PER_CALL_MAX: Final = 10_000
"""New partitions in one CreateTopics or CreatePartitions call; together they are one batch of the log."""


def too_many_partitions() -> Refusal:
    return Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


# ---- new partitions -------------------------------------------------------------------------------------------------


def new_partition(
    state: ControllerState, topic_id: UUID, index: int, replicas: Sequence[int], isr: Sequence[int]
) -> PartitionRecord:
    """The first record of a partition, led by the first replica that is in sync."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[state.default_directory(broker_id) for broker_id in replicas],
    )


def create_partitions(state: ControllerState, command: CreatePartitions) -> Verdict[tuple[TopicResult, ...]]:
    additional = 0
    for asked in command.topics:
        topic = state.image.topic(asked.name)
        if topic is not None:
            additional += max(asked.count - len(topic.partitions), 0)
    if additional > PARTITIONS_PER_CALL_MAX:
        raise too_many_partitions()
    results: list[TopicResult] = []
    records: list[MetadataRecord] = []
    names = Counter(asked.name for asked in command.topics)
    for asked in {asked.name: asked for asked in command.topics}.values():
        if names[asked.name] > 1:
            results.append(TopicResult(asked.name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name."))
            continue
        try:
            topic_id, new = _additional_partitions(state, asked)
        except Refusal as refusal:
            results.append(TopicResult(asked.name, error=refusal.error, message=refusal.message))
        else:
            results.append(TopicResult(asked.name, topic_id))
            records += new
    return Verdict(tuple(results), () if command.validate_only else tuple(records))


def _additional_partitions(state: ControllerState, asked: NewPartitions) -> tuple[UUID, list[PartitionRecord]]:
    topic = state.image.topic(asked.name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if asked.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if asked.count < present:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {present} partition(s); {asked.count} would not be an increase.",
        )
    additional = asked.count - present
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        placements = placement.place(
            state.image,
            state.rng,
            first_partition=present,
            partitions=additional,
            replication_factor=replication_factor,
        )
    else:
        if len(asked.assignments) != additional:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} assignment(s)"
                " were specified.",
            )
        placements = list(asked.assignments)
        for replicas in placements:
            placement.check_manual(state.image, replicas, replication_factor)
    return topic.topic_id, [
        new_partition(state, topic.topic_id, index, replicas, placement.active_replicas(state.image, index, replicas))
        for index, replicas in enumerate(placements, present)
    ]


# ---- leaders --------------------------------------------------------------------------------------------------------


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
    """The broker is no longer alive, or about to go: it leaves every ISR (but the last member stays) and leads nothing."""
    affected = partitions_with(state, lambda partition: broker_id in partition.isr)
    return _elections(state, affected, removed=broker_id, added=NOBODY)


def add_broker(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """The broker is alive again: it may lead what has no leader."""
    affected = partitions_with(state, lambda partition: not partition.has_leader)
    return _elections(state, affected, removed=NOBODY, added=broker_id)


def _elections(
    state: ControllerState,
    affected: Iterable[tuple[TopicImage, PartitionImage]],
    *,
    removed: int,
    added: int,
) -> list[MetadataRecord]:
    def is_eligible(broker_id: int) -> bool:
        return broker_id != removed and (broker_id == added or state.is_active(broker_id))

    records: list[MetadataRecord] = []
    for topic, partition in affected:
        isr = tuple(broker_id for broker_id in partition.isr if broker_id != removed)
        record = elect(topic.topic_id, partition, isr, is_eligible, unclean=allows_unclean_election(state, topic.name))
        if record is not None:
            records.append(record)
    return records


def elect(
    topic_id: UUID,
    partition: PartitionImage,
    isr: tuple[int, ...],
    is_eligible: Callable[[int], bool],
    *,
    unclean: bool,
) -> PartitionChangeRecord | None:
    """What has to change when `isr` is what is left of the in-sync replicas; None: nothing.

    A valid leader stays. Otherwise the first eligible member of the ISR in the order of assignment leads; then, if that is
    allowed, the first eligible replica, which loses what the others had (ISR reset to it, state RECOVERING); then nobody.
    The ISR is never emptied: its last member is where the acknowledged records are.
    """
    record = PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id)
    members = isr or partition.isr
    leader = NO_LEADER
    if partition.leader in members and is_eligible(partition.leader):
        leader = partition.leader
    else:
        leader = next((r for r in partition.replicas if r in members and is_eligible(r)), NO_LEADER)
        if leader == NO_LEADER and unclean:
            leader = next((r for r in partition.replicas if is_eligible(r)), NO_LEADER)
            if leader != NO_LEADER:
                members = (leader,)
                if partition.leader_recovery_state != RECOVERING:
                    record.leader_recovery_state = RECOVERING
    if leader != partition.leader:
        record.leader = leader
    if members != partition.isr:
        record.isr = list(members)
    unchanged = leader == partition.leader and members == partition.isr
    return None if unchanged else record
