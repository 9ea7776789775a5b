"""Reassignment of replicas to other brokers (KIP-455, KIP-860).

The new replicas are added first, beside the ones to remove. When all replicas that stay are in sync, `next_change`
completes the reassignment: in the same record if they are in sync already, or with an AlterPartition of the leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from odradek.cluster.controller.configs import allows_unclean_election
from odradek.cluster.controller.election import Election, next_change
from odradek.cluster.controller.leaders import every_partition, rules_for
from odradek.cluster.controller.messages.partitions import OngoingReassignment, PartitionResult
from odradek.cluster.controller.partitions import placement
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.partition_change import changed_partition
from odradek.cluster.metadata.topic_names import shown
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.cluster.controller.commands import AlterReassignments, ListReassignments
    from odradek.cluster.controller.messages.partitions import NewReplicas
    from odradek.cluster.metadata.image import PartitionImage, TopicImage
    from odradek.cluster.metadata.records import MetadataRecord, PartitionChangeRecord


def alter_reassignments(
    state: ControllerState, command: AlterReassignments
) -> ControllerResult[tuple[PartitionResult, ...]]:
    """Return one result per item. All changes are in one batch."""
    results: list[PartitionResult] = []
    records: list[MetadataRecord] = []
    changed: dict[tuple[UUID, int], PartitionImage] = {}
    for requested in command.partitions:
        try:
            topic, partition = _find(state, requested, changed)
            record = (
                _cancel(state, topic, partition)
                if requested.replicas is None
                else _change(state, topic, partition, requested.replicas, allow_resize=command.allow_resize)
            )
        except Refusal as refusal:
            results.append(PartitionResult(requested.topic, requested.index, refusal.error, refusal.message))
            continue
        results.append(PartitionResult(requested.topic, requested.index))
        if record is not None:
            records.append(record)
            changed[topic.topic_id, partition.index] = changed_partition(partition, record)
    return ControllerResult(tuple(results), tuple(records))


def _find(
    state: ControllerState, requested: NewReplicas, changed: dict[tuple[UUID, int], PartitionImage]
) -> tuple[TopicImage, PartitionImage]:
    topic = state.image.topic(requested.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {shown(requested.topic)}.")
    partition = changed.get((topic.topic_id, requested.index)) or topic.partitions.get(requested.index)
    if partition is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {requested.topic}:{requested.index}."
        )
    return topic, partition


def _in_progress(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# ---- begin ----------------------------------------------------------------------------------------------------------


def _change(
    state: ControllerState, topic: TopicImage, partition: PartitionImage, wanted: tuple[int, ...], *, allow_resize: bool
) -> PartitionChangeRecord | None:
    """Start a reassignment to `wanted`.

    It replaces an ongoing one. Replicas that the ongoing one adds, and that are not in `wanted`, are removed
    immediately.
    """
    placement.check_manual(state.image, wanted, None)
    before = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    size = len([replica for replica in partition.replicas if replica not in partition.removing_replicas])
    if not allow_resize and len(wanted) != size:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {size} to {len(wanted)}"
        )
    if not any(replica in before or replica in wanted for replica in (partition.isr or partition.elr)):
        before = list(partition.replicas)  # only replicas that would be removed are in sync
    removing = tuple(sorted(replica for replica in before if replica not in wanted))
    replicas = wanted + removing
    target = replace(
        partition,
        replicas=replicas,
        isr=tuple(replica for replica in partition.isr if replica in replicas),
        directories=_directories(state, partition, replicas),
        removing_replicas=removing,
        adding_replicas=tuple(sorted(replica for replica in wanted if replica not in before)),
    )
    rules = rules_for(state, topic.name, partition, election=Election.ONLINE)
    return next_change(topic.topic_id, partition, target, rules)


def _directories(state: ControllerState, partition: PartitionImage, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    return tuple(known[replica] if replica in known else state.default_directory(replica) for replica in replicas)


# ---- cancel ---------------------------------------------------------------------------------------------------------


def _cancel(state: ControllerState, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
    """Return to the replicas before the reassignment. If none of them is in sync, records may be lost."""
    if not _in_progress(partition):
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    target = replace(
        partition,
        replicas=replicas,
        isr=tuple(replica for replica in partition.isr if replica not in adding),
        directories=_directories(state, partition, replicas),
        removing_replicas=(),
        adding_replicas=(),
    )
    held_on = any(replica in replicas for replica in (partition.isr or partition.elr))
    record = next_change(topic.topic_id, partition, target, rules_for(state, topic.name, partition))
    if not held_on and not allows_unclean_election(state, topic.name):
        _cannot_revert(topic, partition, "it would require an unclean leader election")
    if not held_on and (record is None or record.leader == NO_LEADER):
        _cannot_revert(topic, partition, "none of the replicas before it is alive")
    return record


def _cannot_revert(topic: TopicImage, partition: PartitionImage, why: str) -> NoReturn:
    raise Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"Unable to revert partition assignment for {topic.name}:{partition.index} because {why}.",
    )


# ---- list -----------------------------------------------------------------------------------------------------------


def list_reassignments(
    state: ControllerState, command: ListReassignments
) -> ControllerResult[tuple[OngoingReassignment, ...]]:
    """Return the ongoing reassignments of the requested partitions, or of all partitions."""
    found = []
    keys = every_partition(state, command.topics) if command.partitions is None else list(command.partitions)
    for name, index in keys:
        partition = state.image.partition(name, index)
        if partition is not None and _in_progress(partition):
            found.append(
                OngoingReassignment(
                    name, index, partition.replicas, partition.adding_replicas, partition.removing_replicas
                )
            )
    return ControllerResult(tuple(found))
