"""CreateDelegationToken: create a delegation token, by which clients log in as its owner (KIP-48).

Behavior:
* The owner is the principal of the client, or the user that the request names. The response has the id and the HMAC of
  the token: user name and password of a login by SCRAM with the extension tokenauth.
* The HMAC is derived from the id and from `delegation.token.secret.key`. No log or file has it.
* The token expires after `delegation.token.expiry.time.ms`, unless it is renewed.

Errors:
* DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection with PLAINTEXT, with SSL without a client certificate, or after a
  login by a token. DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`.
* DELEGATION_TOKEN_AUTHORIZATION_FAILED for another owner, without CREATE_TOKENS on it. INVALID_PRINCIPAL_TYPE if the
  owner or a renewer is no user.
* POLICY_VIOLATION above 1,000 tokens of an owner, 10,000 tokens, or 4,096 characters of owner and renewers.

Version notes:
* v2 is flexible. v3 has the owner in the request, and the requester in the response (KIP-373).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.context import Access
from odradek.broker.security.token_requests import FOR_ITSELF, check_connection, principal_of, requester_of
from odradek.cluster.authorizer import AclOperation, Principal, ResourceType
from odradek.cluster.controller.messages.tokens import NewToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def handle(context: QuorumRequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester = context.session.principal
    owner = _owner(context, request)
    if owner != requester and not context.allowed(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers)
    created = await context.quorum.controller.create_token(
        NewToken(str(owner), str(requester), renewers, request.max_lifetime_ms)
    )
    if owner == requester and context.audit is not None:
        access = Access(AclOperation.CREATE_TOKENS, ResourceType.USER, (str(owner),), rule=FOR_ITSELF)
        context.audit.changed(context, access)
    token = created.token
    return CreateDelegationTokenResponse(
        ErrorCode.NONE,
        *principal_of(token.owner),
        *requester_of(context, principal_of(token.requester)),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        created.token_id,
        created.hmac,
    )


def _owner(context: QuorumRequestContext, request: CreateDelegationTokenRequest) -> Principal:
    """Return the owner of the requested token: the client, unless the request names another principal."""
    if not request.owner_principal_name:
        return context.session.principal
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refuse(
    context: QuorumRequestContext, request: CreateDelegationTokenRequest, error: ErrorCode, message: str | None
) -> CreateDelegationTokenResponse:
    requester = requester_of(context, context.session.principal)
    return CreateDelegationTokenResponse(error, *_owner(context, request), *requester, -1, -1, -1)


API: Final = Api(
    key=CreateDelegationTokenRequest.API_KEY,
    min_version=1,
    max_version=3,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    check=check_connection,
    elements=lambda request: len(request.renewers),
    acl="CREATE_TOKENS on the owner, unless it is the client",
)
