"""SaslAuthenticate: authenticate a connection by the messages of its SASL mechanism (KIP-152, KIP-368).

Behavior:
* PLAIN takes one request, SCRAM two, and OAUTHBEARER one, or two if the token is not valid (see SaslHandshake).
* SCRAM with the extension tokenauth authenticates the owner of a delegation token (KIP-48): the user name is the id of
  the token, and the password its HMAC in base64.
* The session of a client ends at the expiry of its token, and `connections.max.reauth.ms` after the login. Then the
  next request closes the connection, unless the client authenticates again, with the same principal.
* After many failed logins of an address, its further logins wait, or are refused.

Errors:
* ILLEGAL_SASL_STATE without a SaslHandshake before it.
* SASL_AUTHENTICATION_FAILED if the client does not prove its identity. An unknown user of SCRAM receives the same
  responses as a known one.
* After an error, the connection closes with the response, which is delayed by
  `connection.failed.authentication.delay.ms`.

Version notes:
* v1 has the lifetime of the session (KIP-368). 0: it does not expire. v2 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.listener import LOGIN, UNAUTHENTICATED
from odradek.protocol.errors import ERRORS, ErrorCode
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.sasl.cluster_secret import may_be_of_node
from odradek.protocol.sasl.plain import is_plain


def handle(
    context: QuorumRequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Ordered[SaslAuthenticateResponse]:
    return context.node.authentication.authenticate(context, bytes(request.auth_bytes))


def refuse(
    context: QuorumRequestContext, request: SaslAuthenticateRequest, error: ErrorCode, message: str | None
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error, message or ERRORS[error].message)


def early(request: SaslAuthenticateRequest) -> bool:
    """Return True for messages that nodes can send before the metadata is known: by the cluster secret, and of PLAIN.

    Other logins wait until this node has the users of the cluster.
    """
    message = bytes(request.auth_bytes)
    return may_be_of_node(message) or is_plain(message)


API: Final = Api(
    key=SaslAuthenticateRequest.API_KEY,
    min_version=0,
    max_version=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    handle=handle,
    refuse=refuse,
    listeners=(UNAUTHENTICATED, LOGIN),
    early=early,
)
