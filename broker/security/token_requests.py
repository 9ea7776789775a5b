"""Rules for requests about delegation tokens: the connections on which they are served, and the audit log."""

from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from odradek.broker.requests.context import Access, RequestContext
from odradek.cluster.authorizer import ANONYMOUS, AclOperation, Principal, ResourceType
from odradek.cluster.metadata.tokens import DelegationToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.security_protocol import SecurityProtocol

REQUESTER_VERSION_MIN: Final = 3
"""First version of CreateDelegationToken and DescribeDelegationToken whose response has the requester (KIP-373)."""
FOR_ITSELF: Final = "a user may create tokens for itself"
OWNER_OR_RENEWER: Final = "the principal is the owner or a renewer of the token"
NEITHER: Final = "the principal is neither the owner nor a renewer of the token"


_OF_EXISTING: Final = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED)
"""Errors that show that a token exists."""
NamedToken = tuple[str, DelegationToken]
"""A token and its id."""


async def audited(context: RequestContext, token: NamedToken | None, change: Awaitable[int]) -> int:
    """Return the result of the renewal or expiration of a token. The audit log has the decision, which no ACL makes.

    `token` is the token before the change, or None if it is unknown. Raise Refusal(DELEGATION_TOKEN_NOT_FOUND) also if
    the client may not see the token: another error would reveal that it exists.
    """
    audit = context.audit
    try:
        expires_ms = await change
    except Refusal as refusal:
        if audit is not None and refusal.error is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH:
            audit.denied(context, _access(token, NEITHER))
        if refusal.error in _OF_EXISTING and (token is None or not visible_tokens(context, [token])):
            raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from refusal
        raise
    if audit is not None:
        audit.changed(context, _access(token, OWNER_OR_RENEWER))
    return expires_ms


def _access(token: NamedToken | None, rule: str) -> Access:
    names = ("" if token is None else token[0],)
    return Access(AclOperation.ALTER, ResourceType.DELEGATION_TOKEN, names, rule=rule)


def visible_tokens(context: RequestContext, tokens: Iterable[NamedToken]) -> Sequence[NamedToken]:
    """Return the tokens that the client may see, with which it can log in."""
    tokens = list(tokens)
    client = str(context.session.principal)
    others = [(token_id, token) for token_id, token in tokens if not token.names(client)]
    ids = [token_id for token_id, _ in others]
    permitted = set(context.permitted(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, ids))
    owners = list(dict.fromkeys(token.owner for _, token in others))
    described = set(context.permitted(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, owners))
    return [
        (token_id, token)
        for token_id, token in tokens
        if token.names(client) or token_id in permitted or token.owner in described
    ]


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
