"""ElectLeaders: elect the preferred leaders of partitions, or leaders for partitions without one (KIP-183, KIP-460).

Behavior:
* A preferred election elects the first replica of the assignment if it is in sync.
* An unclean election is for a partition without a leader. It elects any active replica and can lose acknowledged
  records.
* A request without partitions covers all partitions. Its response contains only those for which an election was needed.

Errors:
* For the whole request: CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION for too many named partitions, or
  INVALID_REQUEST for an unknown election type.
* Per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
  ELIGIBLE_LEADERS_NOT_AVAILABLE.

Version notes:
* v0 has preferred elections only. v1 has the election type, and an error for the whole request. v2 is flexible.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.partitions import PartitionResult as Result
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
TOP_LEVEL_ERROR_MIN_VERSION: Final = 1
PARTS: Final = Splitting(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))


async def handle(context: QuorumRequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    topics = (each.topic for each in request.topic_partitions or ())
    if not context.allowed_on_cluster(AclOperation.ALTER, about=topics):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.election_type not in {PREFERRED, UNCLEAN}:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    named = request.topic_partitions is not None
    partitions = await distinct(context, PARTS, request, _partitions) if named else None
    results = await context.quorum.controller.elect_leaders(
        partitions, unclean=request.election_type == UNCLEAN, timeout_ms=request.timeout_ms
    )
    return await respond_in_parts(context, PARTS, ElectLeadersResponse, results, _response)


def _partitions(request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    return ((topic.topic, index) for topic in request.topic_partitions or () for index in topic.partitions)


def _response(results: Sequence[Result]) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(
            PartitionResult(partition_id=result.index, error_code=result.error, error_message=result.message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=partition_results)
            for topic, partition_results in topics.items()
        ]
    )


def refuse(
    context: QuorumRequestContext, request: ElectLeadersRequest, error: ErrorCode, message: str | None
) -> ElectLeadersResponse:
    if context.api_version >= TOP_LEVEL_ERROR_MIN_VERSION:
        return ElectLeadersResponse(error_code=error)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )


def _splitting(version: int) -> Splitting | None:
    """Split refusals up to v0, which have a result for each partition."""
    if version >= TOP_LEVEL_ERROR_MIN_VERSION:
        return None
    return PARTS


API: Final = Api(
    key=43,
    min_version=0,
    max_version=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    elements=lambda request: sum(len(topic.partitions) for topic in request.topic_partitions or ()),
    splitting=_splitting,
    acl="ALTER on the cluster",
)
