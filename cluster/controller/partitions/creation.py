"""Creation of partitions: new ones of a topic, and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.messages.topics import NewPartitions, TopicResult
from odradek.cluster.controller.partitions import placement
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.records import MetadataRecord, PartitionRecord
from odradek.cluster.metadata.topic_names import is_internal
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from odradek.cluster.controller.commands import CreatePartitions

PARTITIONS_PER_CALL_MAX: Final = 10_000
"""Maximum new partitions per CreateTopics or CreatePartitions request: Kafka's
`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`. The partitions of one topic are one batch of the metadata log.
"""


def too_many_partitions(what: str = "partitions") -> Refusal:
    return Refusal(ErrorCode.POLICY_VIOLATION, f"Excessively large number of {what} per request.")


# ---- new partitions -------------------------------------------------------------------------------------------------


def new_partitions(
    state: ControllerState, topic_id: UUID, first_partition: int, placements: Iterable[Sequence[int]]
) -> list[PartitionRecord]:
    """Return the first record of each partition. The first in-sync replica is its leader.

    Partitions with equal replicas share their lists: a topic with thousands of partitions has few different ones.
    Raise Refusal(INVALID_REPLICA_ASSIGNMENT) if the ISR of a partition would be empty.
    """
    known: dict[tuple[int, ...], tuple[list[int], list[int], list[UUID]]] = {}
    records = []
    for index, placed in enumerate(placements, first_partition):
        key = tuple(placed)
        shared = known.get(key)
        if shared is None:
            isr = list(placement.active_replicas(state, index, key))
            shared = known[key] = list(key), isr, [state.default_directory(broker_id) for broker_id in key]
        replicas, isr, directories = shared
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=directories,
            )
        )
    return records


def create_partitions(state: ControllerState, command: CreatePartitions) -> ControllerResult[tuple[TopicResult, ...]]:
    results: list[TopicResult] = []
    records: list[MetadataRecord] = []
    names = Counter(requested.name for requested in command.topics)
    for requested in {requested.name: requested for requested in command.topics}.values():
        if names[requested.name] > 1:
            results.append(
                TopicResult(requested.name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")
            )
            continue
        try:
            topic_id, new = _additional_partitions(state, requested)
        except Refusal as refusal:
            results.append(TopicResult(requested.name, error=refusal.error, message=refusal.message))
        else:
            results.append(TopicResult(requested.name, topic_id))
            records += new
    return ControllerResult(tuple(results), () if command.validate_only else tuple(records))


def _additional_partitions(state: ControllerState, requested: NewPartitions) -> tuple[UUID, list[PartitionRecord]]:
    topic = state.image.topic(requested.name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if requested.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if requested.count < present:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {requested.name} currently has {present} partition(s);"
            f" {requested.count} would not be an increase.",
        )
    if is_internal(requested.name):
        # Kafka adds them. Then brokers move ids to other partitions, without the state of the ids.
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {requested.name} must keep its {present} partition(s): the coordinators of existing ids would"
            " change, and their state would be lost.",
        )
    additional = requested.count - present
    replication_factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        placements = placement.place(
            state.image,
            state.rng,
            first_partition=present,
            partitions=additional,
            replication_factor=replication_factor,
            draining=state.draining,
        )
    else:
        if len(requested.assignments) != additional:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s),"
                f" but only {len(requested.assignments)} assignment(s) were specified.",
            )
        placements = list(requested.assignments)
        for replicas in placements:
            placement.check_manual(state.image, replicas, replication_factor)
    return topic.topic_id, new_partitions(state, topic.topic_id, present, placements)
