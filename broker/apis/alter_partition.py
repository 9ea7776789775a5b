"""AlterPartition: change the in-sync replicas of partitions, sent by their leader to the active controller (KIP-497).

Behavior:
* The leader proposes a new ISR. It also reports that it has recovered from an unclean election (KIP-704).
* If the change completes a reassignment that removes the leader from the replicas, the result is NEW_LEADER_ELECTED,
  although the controller has made the change (as in Kafka).

Errors:
* For the whole request: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, STALE_BROKER_EPOCH. Per partition:
  FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION (a stale partition epoch), INELIGIBLE_REPLICA, and others.

Version notes:
* v2 names topics by id. v3 names each member of the ISR with its broker epoch (KIP-903). The epoch lets
  the controller refuse a replica that has restarted, and lost records, since the leader counted it as caught up.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.controller.partitions.isr import EPOCH_NOT_KNOWN
from odradek.cluster.metadata.image import RECOVERED, RECOVERING
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

ISR_EPOCHS_MIN_VERSION: Final = 3


async def handle(context: QuorumRequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    context.require_node(request.broker_id)
    with_epochs = context.api_version >= ISR_EPOCHS_MIN_VERSION
    changes = [
        PartitionIsr(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs)
            if with_epochs
            else tuple((broker_id, EPOCH_NOT_KNOWN) for broker_id in partition.new_isr),
            partition.leader_recovery_state == RECOVERING,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    results = iter(await context.quorum.controller.alter_partition(request.broker_id, request.broker_epoch, changes))
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(topic_id=topic.topic_id, partitions=[_result(next(results)) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _result(altered: AlteredPartition) -> ResponsePartitionData:
    if altered.error is not ErrorCode.NONE:
        return ResponsePartitionData(partition_index=altered.index, error_code=altered.error)
    return ResponsePartitionData(
        partition_index=altered.index,
        leader_id=altered.leader,
        leader_epoch=altered.leader_epoch,
        isr=list(altered.isr),
        leader_recovery_state=RECOVERING if altered.recovering else RECOVERED,
        partition_epoch=altered.partition_epoch,
    )


def refuse(
    context: QuorumRequestContext, request: AlterPartitionRequest, error: ErrorCode, message: str | None
) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=error)


API: Final = Api(
    key=56,
    min_version=2,
    max_version=3,
    request=AlterPartitionRequest,
    response=AlterPartitionResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    acl="CLUSTER_ACTION on the cluster",
)
