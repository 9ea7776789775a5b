"""ListPartitionReassignments: list the reassignments in progress (KIP-455).

Behavior:
* The response covers the requested partitions, or all. It omits partitions without a reassignment.

Errors:
* CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.partitions import OngoingReassignment
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PARTS: Final = Splitting(("topics", "partition_indexes"), ("topics", "partitions"))


async def handle(
    context: QuorumRequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    requested = None if request.topics is None else await distinct(context, PARTS, request, _partitions)
    reassignments = await context.quorum.controller.list_reassignments(requested, timeout_ms=request.timeout_ms)
    return await respond_in_parts(context, PARTS, ListPartitionReassignmentsResponse, reassignments, _response)


def _partitions(request: ListPartitionReassignmentsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, index) for topic in request.topics or () for index in topic.partition_indexes)


def _response(reassignments: Sequence[OngoingReassignment]) -> ListPartitionReassignmentsResponse:
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
    elements=lambda request: sum(len(topic.partition_indexes) for topic in request.topics or ()),
    acl="DESCRIBE on the cluster",
)
