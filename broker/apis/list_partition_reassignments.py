"""ListPartitionReassignments: list the reassignments in progress (KIP-455).

Behavior:
* The response covers the requested partitions, or all. It omits partitions without a reassignment.

Errors:
* CLUSTER_AUTHORIZATION_FAILED.
"""

from itertools import groupby
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    context: QuorumRequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    requested = None
    if request.topics is not None:
        named = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        requested = list(dict.fromkeys(named))
    reassignments = await context.quorum.controller.list_reassignments(requested, timeout_ms=request.timeout_ms)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=name,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=ongoing.index,
                        replicas=list(ongoing.replicas),
                        adding_replicas=list(ongoing.adding),
                        removing_replicas=list(ongoing.removing),
                    )
                    for ongoing in group
                ],
            )
            for name, group in groupby(reassignments, key=lambda ongoing: ongoing.topic)
        ],
    )


def refuse(
    context: QuorumRequestContext, request: ListPartitionReassignmentsRequest, error: ErrorCode, message: str | None
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=message)


API: Final = Api(
    key=46,
    min_version=0,
    max_version=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="DESCRIBE on the cluster",
)
