"""AlterPartition: what leaders say about who is in sync with them (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.brokers.active import check_broker_epoch
from odradek.cluster.controller.election import next_change
from odradek.cluster.controller.leaders import holds_replica, rules_for
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
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
    """One result per item, all changes in one batch. A partition that is named again is judged by what the first one made of it."""
    check_broker_epoch(state, command.broker_id, command.broker_epoch)
    results: list[AlteredPartition] = []
    records: list[MetadataRecord] = []
    changed: dict[tuple[UUID, int], PartitionImage] = {}
    for asked in command.partitions:
        topic = state.image.topic_by_id(asked.topic_id)
        if topic is None:
            results.append(AlteredPartition(asked.topic_id, asked.index, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        key = (asked.topic_id, asked.index)
        partition = changed.get(key) or topic.partitions.get(asked.index)
        error = _refused(state, command.broker_id, asked, partition)
        if partition is None or error is not None:
            results.append(AlteredPartition(asked.topic_id, asked.index, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        after = _alter(state, topic, partition, asked, records)
        changed[key] = after
        results.append(_result(asked, command.broker_id, after))
    return ControllerResult(tuple(results), tuple(records))


def _alter(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionImage,
    asked: PartitionIsr,
    records: list[MetadataRecord],
) -> PartitionImage:
    isr = tuple(broker_id for broker_id, _ in asked.isr)
    target = replace(
        partition,
        isr=isr,
        leader_recovery_state=RECOVERING if asked.recovering else RECOVERED,
        directories=_directories(state, partition, isr),
    )
    # The rules see the directories of `target`: a replica that joins the ISR with a new directory may have to lead at once,
    # because the same change ends a reassignment that removes the leader.
    record = next_change(topic.topic_id, partition, target, rules_for(state, topic.name, target))
    if record is None:
        return partition
    records.append(record)
    return changed_partition(partition, record)


def _directories(state: ControllerState, partition: PartitionImage, isr: tuple[int, ...]) -> tuple[UUID, ...]:
    """A replica whose directory was lost has another one; it counts from the moment on at which it has everything again."""
    return tuple(
        state.default_directory(replica)
        if replica in isr and replica not in partition.isr and not holds_replica(state, partition, replica)
        else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    )


def _result(asked: PartitionIsr, sender: int, after: PartitionImage) -> AlteredPartition:
    if after.leader != sender:
        # The change has been made; it finished a reassignment that leaves the sender out. It has to wait for the metadata.
        return AlteredPartition(asked.topic_id, asked.index, ErrorCode.NEW_LEADER_ELECTED)
    return AlteredPartition(
        asked.topic_id,
        asked.index,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        isr=after.isr,
        recovering=after.leader_recovery_state == RECOVERING,
    )


# ---- checks, in Kafka's order -----------------------------------------------------------------------------------------


def _refused(
    state: ControllerState, sender: int, asked: PartitionIsr, partition: PartitionImage | None
) -> ErrorCode | None:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        # The leader knows more than this controller: there must be a newer one.
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return _bad_isr(asked, partition) or _ineligible_member(state, asked)


def _bad_isr(asked: PartitionIsr, partition: PartitionImage) -> ErrorCode | None:
    isr = [broker_id for broker_id, _ in asked.isr]
    duplicate = len(dict.fromkeys(isr)) != len(isr)
    stranger = any(broker_id not in partition.replicas for broker_id in isr)
    if duplicate or stranger or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if asked.recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _ineligible_member(state: ControllerState, asked: PartitionIsr) -> ErrorCode | None:
    """A member that is not alive as the incarnation which the leader has seen catch up may hold less than the leader thinks."""
    for broker_id, epoch in asked.isr:
        broker = state.image.brokers.get(broker_id)
        if broker is None or not broker.is_active or epoch not in {EPOCH_NOT_KNOWN, broker.epoch}:
            return ErrorCode.INELIGIBLE_REPLICA
    return None
