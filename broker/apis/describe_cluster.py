"""DescribeCluster: v0-v2

Behavior:
* Brokers by their endpoint on the listener that was asked; any live broker takes what is meant for the controller, and is
  named as such.

Version notes:
* v1: endpoint type (KIP-919); this listener describes brokers, MISMATCHED_ENDPOINT_TYPE for controllers
* v2: fenced brokers may be asked for (KIP-1073)
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
        raise Refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this endpoint describes brokers, not controllers")
    if request.endpoint_type != BROKERS:
        raise Refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is not known")
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
