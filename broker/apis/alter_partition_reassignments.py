"""AlterPartitionReassignments: v0-v1

Behavior:
* Where the replicas of partitions shall be, the preferred leader first (KIP-455). The answer comes when the move has begun; it is
  done when all of them are in sync. With no replicas named a move that is under way is taken back.

Version notes: v1 can refuse that the number of replicas changes (KIP-860).
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionResult
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    context: QuorumRequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        NewReplicas(topic.name, item.partition_index, None if item.replicas is None else tuple(item.replicas))
        for topic in request.topics
        for item in topic.partitions
    ]
    done = await context.quorum.controller.alter_reassignments(
        asked, allow_resize=request.allow_replication_factor_change, timeout_ms=request.timeout_ms
    )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=_topics(done),
    )


def _topics(results: Iterable[PartitionResult]) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(
            name=name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=result.index, error_code=result.error, error_message=result.message
                )
                for result in group
            ],
        )
        for name, group in groupby(results, key=lambda result: result.topic)
    ]


def refuse(
    context: QuorumRequestContext, request: AlterPartitionReassignmentsRequest, error: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message)


API: Final = Api(
    key=45,
    min_version=0,
    max_version=1,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
