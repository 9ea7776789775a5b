"""Envelope: carry a client's request from the broker that received it to the active controller (KIP-590).

Behavior:
* The controller authorizes the embedded request with the principal and address of the client. Without a principal, the
  request is the sender's own, and authorized with the principal of its connection.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, or if the principal is that of nodes and the sender has another
  one. PRINCIPAL_DESERIALIZATION_FAILURE for a malformed principal. NOT_CONTROLLER if the node is not the active
  controller. INVALID_REQUEST if the embedded bytes are not a request, or if the controller does not serve its API.
"""

from ipaddress import ip_address
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Embedded, Routing, always
from odradek.broker.requests.listener import CLIENT, CONTROLLER, Listener
from odradek.broker.requests.session import NO_CONNECTION, Session
from odradek.cluster.authorizer import CLUSTER_NODE, AclOperation, Principal
from odradek.protocol.connection import parse_request
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse


def handle(context: QuorumRequestContext, request: EnvelopeRequest) -> Embedded[EnvelopeResponse]:
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.quorum.controller.is_active:
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    try:
        frame = parse_request(request.request_data)
    except Malformed as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
    return Embedded(frame, _client_session(context, request), EnvelopeResponse)


def refuse(
    context: QuorumRequestContext, request: EnvelopeRequest, error: ErrorCode, message: str | None
) -> EnvelopeResponse:
    return EnvelopeResponse(None, error)


def _client_session(context: QuorumRequestContext, request: EnvelopeRequest) -> Session:
    """Return a session for the client of the embedded request, with principal and address from the envelope.

    The envelope holds the memory of the embedded request until its response is sent.
    """
    own = context.session.listener
    listener = Listener(own.name, own.host, own.port, own.advertised_host, own.advertised_port, (CLIENT,))
    packed = bytes(request.client_host_address)
    try:
        host = str(ip_address(packed)) if packed else context.session.client_host
    except ValueError as error:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"The client address in the envelope is invalid: {packed.hex()}"
        ) from error
    session = Session(NO_CONNECTION, listener, host, 0, _principal(context, request))
    session.on_charge = context.reserve
    if not request.request_principal:
        session.node = context.session.node
    return session


def _principal(context: QuorumRequestContext, request: EnvelopeRequest) -> Principal:
    """Return the principal of the client. Without one, the request is that of the node that sent the envelope.

    Raise Refusal(CLUSTER_AUTHORIZATION_FAILED) if it is the principal of nodes, and the sender is not such a node.
    """
    own = context.session.principal
    if not request.request_principal:
        return own
    try:
        kind, colon, name = bytes(request.request_principal).decode().partition(":")
    except UnicodeDecodeError as error:
        raise Refusal(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    if not colon:
        raise Refusal(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "The principal in the envelope has no type.")
    principal = Principal(kind, name)
    if principal == CLUSTER_NODE != own:
        context.note_denied_node(str(principal), "the sender of the envelope has another principal")
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return principal


API: Final = Api(
    key=EnvelopeRequest.API_KEY,
    min_version=0,
    max_version=0,
    request=EnvelopeRequest,
    response=EnvelopeResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    routing=Routing.ENVELOPE,
    acl="CLUSTER_ACTION on the cluster",
)
