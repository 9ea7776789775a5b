"""SaslHandshake: begin the authentication of a connection (KIP-43, KIP-152, KIP-368).

Behavior:
* On a listener with SASL_PLAINTEXT or SASL_SSL, clients authenticate by a mechanism of `sasl.enabled.mechanisms`. Until
  then, such a listener serves only ApiVersions, SaslHandshake and SaslAuthenticate.
* A client that is authenticated can authenticate again, with the same mechanism, at most once per second.
* Nodes of the cluster authenticate to each other by SCRAM-SHA-256, with a credential derived from the cluster secret
  (`cluster.secret.file`). Listeners for brokers and controllers serve it if the node has a secret.
* A node's first message has two extension attributes (RFC 5802, section 5.1): `t` with the id of the node that it has
  dialed, and `s` with its own id. The proof covers them. A node refuses a login with another `t`, so that no process
  can pass a login on to a third node. Later requests of the connection that name a node must name `s`.

Errors:
* UNSUPPORTED_SASL_MECHANISM for another mechanism; the response lists the supported ones.
* ILLEGAL_SASL_STATE during a login, or if the client repeats its login twice in a second.
* After an error, the connection closes with the response, which is delayed by
  `connection.failed.authentication.delay.ms`.

Version notes:
* SASL messages without a request header follow v0: each frame is a message of the mechanism, and so is its response. A
  refused message has no response: the connection closes after `connection.failed.authentication.delay.ms`. All other
  rules are those of SaslAuthenticate. A session ends as with v1, but the client does not receive its lifetime.
* SaslAuthenticate requests follow v1 (KIP-152).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Ordered, always
from odradek.broker.requests.listener import LOGIN, UNAUTHENTICATED
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    context: QuorumRequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Ordered[SaslHandshakeResponse]:
    return context.node.authentication.handshake(context, request.mechanism)


def refuse(
    context: QuorumRequestContext, request: SaslHandshakeRequest, error: ErrorCode, message: str | None
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error)


API: Final = Api(
    key=SaslHandshakeRequest.API_KEY,
    min_version=0,
    max_version=1,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    handle=handle,
    refuse=refuse,
    listeners=(UNAUTHENTICATED, LOGIN),
    early=always,
)
