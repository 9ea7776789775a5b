"""Moving replicas between brokers (KIP-455, KIP-860).

First the new replicas are added, beside those that are to go. When every replica that is to stay is in sync, `next_change` takes
the others away: in the same record when that holds already, otherwise with an AlterPartition of the leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from odradek.cluster.controller.configs import allows_unclean_election
from odradek.cluster.controller.election import Election, next_change
from odradek.cluster.controller.leaders import rules_for
from odradek.cluster.controller.messages.partitions import OngoingReassignment, PartitionResult
from odradek.cluster.controller.partitions import placement
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.image import NO_LEADER
from odradek.cluster.metadata.partition_change import changed_partition
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.cluster.controller.commands import AlterReassignments, ListReassignments
    from odradek.cluster.controller.messages.partitions import NewReplicas
    from odradek.cluster.metadata.image import PartitionImage, TopicImage
    from odradek.cluster.metadata.records import MetadataRecord, PartitionChangeRecord


def alter_reassignments(
    state: ControllerState, command: AlterReassignments
) -> ControllerResult[tuple[PartitionResult, ...]]:
    """One result per item, all changes in one batch."""
    results: list[PartitionResult] = []
    records: list[MetadataRecord] = []
    changed: dict[tuple[UUID, int], PartitionImage] = {}
    for asked in command.partitions:
        try:
            topic, partition = _find(state, asked, changed)
            record = (
                _cancel(state, topic, partition)
                if asked.replicas is None
                else _change(state, topic, partition, asked.replicas, allow_resize=command.allow_resize)
            )
        except Refusal as refusal:
            results.append(PartitionResult(asked.topic, asked.index, refusal.error, refusal.message))
            continue
        results.append(PartitionResult(asked.topic, asked.index))
        if record is not None:
            records.append(record)
            changed[topic.topic_id, partition.index] = changed_partition(partition, record)
    return ControllerResult(tuple(results), tuple(records))


def _find(
    state: ControllerState, asked: NewReplicas, changed: dict[tuple[UUID, int], PartitionImage]
) -> tuple[TopicImage, PartitionImage]:
    topic = state.image.topic(asked.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {asked.topic}.")
    partition = changed.get((topic.topic_id, asked.index)) or topic.partitions.get(asked.index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {asked.topic}:{asked.index}.")
    return topic, partition


def _in_progress(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# ---- begin ----------------------------------------------------------------------------------------------------------


def _change(
    state: ControllerState, topic: TopicImage, partition: PartitionImage, wanted: tuple[int, ...], *, allow_resize: bool
) -> PartitionChangeRecord | None:
    """A move that is under way is led to another goal: what it was adding, and the new one does not want, goes at once."""
    placement.check_manual(state.image, wanted, None)
    before = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    size = len([replica for replica in partition.replicas if replica not in partition.removing_replicas])
    if not allow_resize and len(wanted) != size:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {size} to {len(wanted)}"
        )
    if not any(replica in before or replica in wanted for replica in (partition.isr or partition.elr)):
        before = list(partition.replicas)  # those that would go are all that is in sync
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
    """Back to the replicas before. Where none of them is in sync any more, that may lose records."""
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
    """Those under way, of the partitions that were asked for or of all."""
    found = []
    if command.partitions is None:
        keys = [(topic.name, index) for topic in state.image.topics.values() for index in topic.partitions]
    else:
        keys = list(command.partitions)
    for name, index in keys:
        partition = state.image.partition(name, index)
        if partition is not None and _in_progress(partition):
            found.append(
                OngoingReassignment(
                    name, index, partition.replicas, partition.adding_replicas, partition.removing_replicas
                )
            )
    return ControllerResult(tuple(found))
