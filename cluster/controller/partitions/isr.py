"""AlterPartition: changes of the ISR that leaders request (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.brokers.active import check_broker_epoch
from odradek.cluster.controller.election import next_change
from odradek.cluster.controller.leaders import holds_replica, rules_for
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.controller.preferred import elections_after_joins, joins_as_preferred
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.image import RECOVERED, RECOVERING, PartitionImage, TopicImage
from odradek.cluster.metadata.partition_change import changed_partition
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.cluster.controller.commands import AlterPartition
    from odradek.cluster.metadata.records import MetadataRecord

EPOCH_NOT_KNOWN: Final = -1


def alter_partition(state: ControllerState, command: AlterPartition) -> ControllerResult[tuple[AlteredPartition, ...]]:
    """Return one result per item.

    All changes are in one batch. A repeated partition is decided on the result of its first change.
    """
    check_broker_epoch(state, command.broker_id, command.broker_epoch)
    results: list[AlteredPartition] = []
    records: list[MetadataRecord] = []
    joined: list[int] = []
    changed: dict[tuple[UUID, int], PartitionImage] = {}
    for requested in command.partitions:
        topic = state.image.topic_by_id(requested.topic_id)
        if topic is None:
            results.append(AlteredPartition(requested.topic_id, requested.index, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        key = (requested.topic_id, requested.index)
        partition = changed.get(key) or topic.partitions.get(requested.index)
        error = _refused(state, command.broker_id, requested, partition)
        if partition is None or error is not None:
            results.append(
                AlteredPartition(requested.topic_id, requested.index, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
            continue
        after = _alter(state, topic, partition, requested, records)
        if joins_as_preferred(partition, after):
            joined.append(after.replicas[0])
        changed[key] = after
        results.append(_result(requested, command.broker_id, after))
    return ControllerResult(tuple(results), tuple(records), timers=elections_after_joins(state, joined))


def _alter(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionImage,
    requested: PartitionIsr,
    records: list[MetadataRecord],
) -> PartitionImage:
    isr = tuple(broker_id for broker_id, _ in requested.isr)
    target = replace(
        partition,
        isr=isr,
        leader_recovery_state=RECOVERING if requested.recovering else RECOVERED,
        directories=_directories(state, partition, isr),
    )
    # The rules see the directories of `target`: a replica that joins the ISR with a new directory may become the leader
    # immediately, because the same change completes a reassignment that removes the leader.
    record = next_change(topic.topic_id, partition, target, rules_for(state, topic.name, target))
    if record is None:
        return partition
    records.append(record)
    return changed_partition(partition, record)


def _directories(state: ControllerState, partition: PartitionImage, isr: tuple[int, ...]) -> tuple[UUID, ...]:
    """Return the directories. A replica in a lost directory gets another directory when it joins the ISR again."""
    return tuple(
        state.default_directory(replica)
        if replica in isr and replica not in partition.isr and not holds_replica(state, partition, replica)
        else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    )


def _result(requested: PartitionIsr, sender: int, after: PartitionImage) -> AlteredPartition:
    if after.leader != sender:
        # The change is made. It has completed a reassignment that removes the sender, which must wait for the metadata.
        return AlteredPartition(requested.topic_id, requested.index, ErrorCode.NEW_LEADER_ELECTED)
    return AlteredPartition(
        requested.topic_id,
        requested.index,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        isr=after.isr,
        recovering=after.leader_recovery_state == RECOVERING,
    )


# ---- checks, in Kafka's order ---------------------------------------------------------------------------------------


def _refused(
    state: ControllerState, sender: int, requested: PartitionIsr, partition: PartitionImage | None
) -> ErrorCode | None:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if requested.leader_epoch > partition.leader_epoch or requested.partition_epoch > partition.partition_epoch:
        # The leader has later epochs than this controller: another controller must be active.
        return ErrorCode.NOT_CONTROLLER
    if requested.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if requested.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return _bad_isr(requested, partition) or _ineligible_member(state, requested, partition)


def _bad_isr(requested: PartitionIsr, partition: PartitionImage) -> ErrorCode | None:
    isr = [broker_id for broker_id, _ in requested.isr]
    duplicate = len(dict.fromkeys(isr)) != len(isr)
    foreign = any(broker_id not in partition.replicas for broker_id in isr)
    if duplicate or foreign or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if requested.recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _ineligible_member(state: ControllerState, requested: PartitionIsr, partition: PartitionImage) -> ErrorCode | None:
    """Refuse a member that is inactive, or whose incarnation is not the one that caught up: it may lack records."""
    for broker_id, epoch in requested.isr:
        broker = state.image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in {EPOCH_NOT_KNOWN, broker.epoch}:
            return ErrorCode.INELIGIBLE_REPLICA
        if broker_id in state.draining and broker_id not in partition.isr:
            return ErrorCode.INELIGIBLE_REPLICA
    return None
