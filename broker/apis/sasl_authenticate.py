"""SaslAuthenticate: authenticate a connection by the messages of its SASL mechanism (KIP-152).

Behavior:
* Two requests authenticate a node of the cluster (see SaslHandshake). After them the connection is served like a
  connection of a broker.

Errors:
* ILLEGAL_SASL_STATE without a SaslHandshake before it.
* SASL_AUTHENTICATION_FAILED if the client does not know the cluster secret, or if its login names another node. A new
  attempt begins with SaslHandshake.

Version notes:
* v1 has the lifetime of the session (KIP-368); it is 0, without a limit. v2 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import UNAUTHENTICATED
from odradek.cluster.authorizer import CLUSTER_NODE
from odradek.protocol.errors import ERRORS, ErrorCode
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.sasl.cluster_secret import FAILED_MESSAGE
from odradek.protocol.sasl.mechanism import AuthenticationFailed


def handle(context: QuorumRequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    session = context.session
    exchange, session.exchange = session.exchange, None
    if exchange is None:
        return refuse(context, request, ErrorCode.ILLEGAL_SASL_STATE, None)
    try:
        reply = exchange.next(bytes(request.auth_bytes))
    except AuthenticationFailed as error:
        session.login_failed(error)
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, error.public or FAILED_MESSAGE)
    if reply.identity is None:
        session.exchange = exchange
    else:
        session.authenticated = True
        session.principal = CLUSTER_NODE
    return SaslAuthenticateResponse(error_message=None, auth_bytes=reply.message)


def refuse(
    context: QuorumRequestContext, request: SaslAuthenticateRequest, error: ErrorCode, message: str | None
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error, message or ERRORS[error].message)


API: Final = Api(
    key=SaslAuthenticateRequest.API_KEY,
    min_version=0,
    max_version=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    handle=handle,
    refuse=refuse,
    listeners=(UNAUTHENTICATED,),
    early=always,
)
