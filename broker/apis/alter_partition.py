"""AlterPartition: v2-v3

Behavior:
* From the leader of a partition to the active controller: who is in sync (KIP-497), and that it has recovered from an unclean
  election (KIP-704). NOT_CONTROLLER from a node that is not it; other brokers alone call this, so it is not passed on.
* A change that finishes a reassignment without its sender answers NEW_LEADER_ELECTED, although it was made.

Version notes: v2 names topics by id; v3 names members of the ISR with their broker epochs, so that an incarnation that has come
back without its records is not taken for the one that had caught up (KIP-903).
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.metadata.image import RECOVERED, RECOVERING
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

ISR_WITH_EPOCHS: Final = 3
EPOCH_NOT_KNOWN: Final = -1


async def handle(context: BrokerRequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with_epochs = context.api_version >= ISR_WITH_EPOCHS
    asked = [
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
    done = iter(await context.quorum.controller.alter_partition(request.broker_id, request.broker_epoch, asked))
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(topic_id=topic.topic_id, partitions=[_result(next(done)) for _ in topic.partitions])
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
    context: BrokerRequestContext, request: AlterPartitionRequest, error: ErrorCode, message: str | None
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
