"""AlterPartitionReassignments: start or cancel reassignments of partitions to other replicas (KIP-455).

Behavior:
* A partition is given its target replicas, the preferred leader first. The response means that the reassignment has
  started. It completes when all target replicas are in sync.
* A null list of replicas cancels the reassignment in progress, or is refused with NO_REASSIGNMENT_IN_PROGRESS.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request and for each partition; other errors per partition.

Version notes:
* v1 can forbid changes of the replication factor (KIP-860).
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing, split_by
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionResult
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    context: QuorumRequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=(topic.name for topic in request.topics)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    targets = [
        NewReplicas(topic.name, partition.partition_index, _replicas(partition))
        for topic in request.topics
        for partition in topic.partitions
    ]
    results = await context.quorum.controller.alter_reassignments(
        targets, allow_resize=request.allow_replication_factor_change, timeout_ms=request.timeout_ms
    )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=_topics(results),
    )


def _replicas(partition: ReassignablePartition) -> tuple[int, ...] | None:
    return None if partition.replicas is None else tuple(partition.replicas)


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
    # Kafka's AdminClient takes the error from the partitions alone. Without them, it fails with "too less results".
    return AlterPartitionReassignmentsResponse(
        error_code=error,
        error_message=message,
        responses=_topics(
            PartitionResult(topic.name, partition.partition_index, error, message)
            for topic in request.topics
            for partition in topic.partitions
        ),
    )


API: Final = Api(
    key=45,
    min_version=0,
    max_version=1,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    splitting=split_by(("topics", "partitions"), ("responses", "partitions")),
    elements=lambda request: sum(len(topic.partitions) for topic in request.topics),
    acl="ALTER on the cluster",
)
