"""DescribeCluster: list the cluster id, the brokers and the controller (KIP-700).

Behavior:
* A listener for clients describes brokers, and a listener for controllers alone the registered controllers (KIP-919).
  Each node has its endpoint on the listener of the connection.
* The controller id is the lowest id of an active broker. Each broker forwards requests for the controller (KIP-590). On
  a listener for controllers it is the id of the active controller, or -1 if the response does not list that node.

Errors:
* MISMATCHED_ENDPOINT_TYPE (v0: INVALID_REQUEST) for the type of another listener, UNSUPPORTED_ENDPOINT_TYPE for an
  unknown type.
* CLUSTER_AUTHORIZATION_FAILED for a description of controllers without ALTER on the cluster.

Version notes:
* v1 has the endpoint type, brokers or controllers (KIP-919).
* v2 lists fenced brokers if requested (KIP-1073).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.security.authorized_operations import cluster_operations
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2
NO_CONTROLLER: Final = -1
NAMES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(context: QuorumRequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    served = BROKERS if CLIENT in context.session.listener.roles else CONTROLLERS
    if request.endpoint_type not in NAMES:
        raise Refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != served:
        raise Refusal(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {NAMES[served]}, but we wanted an endpoint of type "
            f"{NAMES[request.endpoint_type]}",
        )
    response = _controllers(context) if served == CONTROLLERS else _brokers(context, request)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _controllers(context: QuorumRequestContext) -> DescribeClusterResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    name, leader_id = context.session.listener.name, context.quorum.raft.leader_id
    controllers = sorted(context.node.metadata.image.controllers.items())
    nodes = [
        DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port, rack=None)
        for controller_id, controller in controllers
        for endpoint in controller.endpoints
        if endpoint.name == name
    ]
    is_listed = any(node.broker_id == leader_id for node in nodes)
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=context.node.cluster_id,
        controller_id=leader_id if is_listed else NO_CONTROLLER,
        brokers=nodes,
    )


def _brokers(context: QuorumRequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    view = MetadataView(context.node.metadata.image, context.session.listener.name)
    return DescribeClusterResponse(
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


def refuse(
    context: QuorumRequestContext, request: DescribeClusterRequest, error: ErrorCode, message: str | None
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
    listeners=(CLIENT, CONTROLLER),
    acl="none for brokers; ALTER on the cluster for controllers",
)
