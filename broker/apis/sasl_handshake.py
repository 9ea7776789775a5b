"""SaslHandshake: begin the authentication of a connection (KIP-43, KIP-152).

Behavior:
* Nodes of the cluster authenticate to each other by SCRAM-SHA-256, with a credential derived from the cluster secret
  (`cluster.secret.file`). Listeners for brokers and controllers serve it if the node has a secret.
* The client's first message has the extension attribute `t` with the id of the node that it has dialed (RFC 5802,
  section 5.1). The proof covers it. A node refuses a login with another id, so that no process can pass a login on to a
  third node.

Errors:
* UNSUPPORTED_SASL_MECHANISM for another mechanism; the response lists the supported one.

Version notes:
* v0 has authentication messages without a Kafka header, and is not served.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import UNAUTHENTICATED
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.sasl.cluster_secret import MECHANISM


def handle(context: QuorumRequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    secret = context.node.secret
    if request.mechanism != MECHANISM.name or secret is None:
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, [MECHANISM.name])
    context.session.exchange = secret.server(context.node.node_id)
    return SaslHandshakeResponse(ErrorCode.NONE, [MECHANISM.name])


def refuse(
    context: QuorumRequestContext, request: SaslHandshakeRequest, error: ErrorCode, message: str | None
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error)


API: Final = Api(
    key=SaslHandshakeRequest.API_KEY,
    min_version=1,
    max_version=1,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    handle=handle,
    refuse=refuse,
    listeners=(UNAUTHENTICATED,),
    early=always,
)
