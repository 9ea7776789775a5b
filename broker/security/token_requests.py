"""Rule for requests about delegation tokens: the connections on which they are served."""

from odradek.broker.requests.context import RequestContext
from odradek.cluster.authorizer import ANONYMOUS, Principal
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.security_protocol import SecurityProtocol


def check_connection(context: RequestContext, request: object = None) -> None:
    """Raise Refusal(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) if the client must not see or change tokens.

    It must have authenticated, and not by a token: otherwise a stolen token could be replaced by new ones without end.
    """
    session, identity = context.session, context.session.login.identity
    protocol = session.listener.security_protocol
    by_token = identity is not None and identity.by_token
    one_way = protocol is SecurityProtocol.SSL and session.principal == ANONYMOUS
    if by_token or one_way or protocol is SecurityProtocol.PLAINTEXT:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def principal_of(text: str) -> Principal:
    """Return the principal of a text of the form `User:alice`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
