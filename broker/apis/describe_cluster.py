"""DescribeCluster: list the cluster id, the brokers and the controller (KIP-700).

Behavior:
* Brokers have their endpoint on the listener of the connection.
* The controller id is the lowest id of an active broker. Each broker forwards requests for the controller (KIP-590).

Errors:
* MISMATCHED_ENDPOINT_TYPE for a description of controllers, UNSUPPORTED_ENDPOINT_TYPE for an unknown type.

Version notes:
* v1 has the endpoint type, brokers or controllers (KIP-919). This broker describes brokers alone.
* v2 lists fenced brokers if requested (KIP-1073).
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.security.authorized_operations import cluster_operations
from odradek.broker.topics.metadata_view import MetadataView
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: BrokerRequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise Refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This endpoint describes brokers, not controllers.")
    if request.endpoint_type != BROKERS:
        raise Refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    view = MetadataView(context.node.metadata.image, context.session.listener.name)
    response = DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=context.node.cluster_id,
        controller_id=view.controller_id(),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker, endpoint in view.brokers(with_fenced=request.include_fenced_brokers)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def refuse(
    context: BrokerRequestContext, request: DescribeClusterRequest, error: ErrorCode, message: str | None
) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error, error_message=message)


API: Final = Api(
    key=60,
    min_version=0,
    max_version=2,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    handle=handle,
    refuse=refuse,
    acl="none",
)
