"""ElectLeaders: v0-v2

Behavior:
* The preferred leader of a partition, or (v1, KIP-460) a leader at any price for one that has none: what others had
  acknowledged may be lost then. ELECTION_NOT_NEEDED where the leader is the wanted one; with no partitions named, all
  others are answered.

Version notes: v0 elects preferred leaders alone; v2 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
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


async def handle(context: QuorumRequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.election_type not in {PREFERRED, UNCLEAN}:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asked = None
    if request.topic_partitions is not None:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    done = await context.quorum.controller.elect_leaders(
        asked, unclean=request.election_type == UNCLEAN, timeout_ms=request.timeout_ms
    )
    topics: dict[str, list[PartitionResult]] = {}
    for result in done:
        topics.setdefault(result.topic, []).append(
            PartitionResult(partition_id=result.index, error_code=result.error, error_message=result.message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in topics.items()
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


API: Final = Api(
    key=43,
    min_version=0,
    max_version=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
