"""Rules for requests about delegation tokens: the connections on which they are served, and the audit log."""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.requests.context import Access, RequestContext
from odradek.cluster.authorizer import ANONYMOUS, AclOperation, Principal, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.security_protocol import SecurityProtocol

REQUESTER_VERSION_MIN: Final = 3
"""First version of CreateDelegationToken and DescribeDelegationToken whose response has the requester (KIP-373)."""
FOR_ITSELF: Final = "a user may create tokens for itself"
OWNER_OR_RENEWER: Final = "the principal is the owner or a renewer of the token"
NEITHER: Final = "the principal is neither the owner nor a renewer of the token"


async def audited(context: RequestContext, token_id: str | None, change: Awaitable[int]) -> int:
    """Return the result of the renewal or expiration of a token. The audit log has the decision, which no ACL makes."""
    audit = context.audit
    try:
        expires_ms = await change
    except Refusal as refusal:
        if audit is not None and refusal.error is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH:
            audit.denied(context, _access(token_id, NEITHER))
        raise
    if audit is not None:
        audit.changed(context, _access(token_id, OWNER_OR_RENEWER))
    return expires_ms


def _access(token_id: str | None, rule: str) -> Access:
    return Access(AclOperation.ALTER, ResourceType.DELEGATION_TOKEN, (token_id or "",), rule=rule)


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


def requester_of(context: RequestContext, requester: Principal) -> Principal:
    """Return the requester of a token for a response, or empty texts in a version that does not have it."""
    return requester if context.api_version >= REQUESTER_VERSION_MIN else Principal("", "")


def principal_of(text: str) -> Principal:
    """Return the principal of a text of the form `User:alice`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
