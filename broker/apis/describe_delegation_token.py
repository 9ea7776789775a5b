"""DescribeDelegationToken: list delegation tokens (KIP-48).

Behavior:
* A client receives the tokens that it owns, has created or may renew. ACLs permit others: DESCRIBE on the token, or
  DESCRIBE_TOKENS on its owner. The response has their HMACs, so it permits a login with them.
* A request with principals is for the tokens that one of them owns, has created or may renew. An empty list is for no
  token.

Errors:
* DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and DELEGATION_TOKEN_AUTH_DISABLED as for CreateDelegationToken.

Version notes:
* v2 is flexible. v3 has the requester of each token (KIP-373).
"""

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Final

from odradek.broker.config.controller import token_rules
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.broker.security.token_requests import (
    NamedToken,
    check_connection,
    principal_of,
    requester_of,
    visible_tokens,
)
from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.metadata.tokens import DelegationToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

PARTS: Final = Splitting(("owners",), ("tokens",))


def handle(
    context: BrokerRequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse | Ordered[DescribeDelegationTokenResponse]:
    check_connection(context)
    rules = token_rules(context.node.config)
    if not rules.enabled:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if PARTS.is_large(request):
        return Ordered(_respond_to_large(context, request, rules))
    owners = None if request.owners is None else frozenset(_owners(request))
    tokens = list(context.node.metadata.image.tokens.items())
    if len(tokens) <= ELEMENTS_PER_PART:
        return _response(context, rules, owners, tokens)
    return Ordered(_respond_in_parts(context, rules, owners, tokens))


async def _respond_to_large(
    context: BrokerRequestContext, request: DescribeDelegationTokenRequest, rules: TokenRules
) -> DescribeDelegationTokenResponse:
    owners = frozenset(await distinct(context, PARTS, request, _owners))
    return await _respond_in_parts(context, rules, owners, list(context.node.metadata.image.tokens.items()))


def _respond_in_parts(
    context: BrokerRequestContext,
    rules: TokenRules,
    owners: frozenset[str] | None,
    tokens: Sequence[NamedToken],
) -> Awaitable[DescribeDelegationTokenResponse]:
    respond = partial(_response, context, rules, owners)
    return respond_in_parts(context, PARTS, DescribeDelegationTokenResponse, tokens, respond)


def _owners(request: DescribeDelegationTokenRequest) -> list[str]:
    return [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners or ()]


def _response(
    context: BrokerRequestContext, rules: TokenRules, owners: frozenset[str] | None, tokens: Iterable[NamedToken]
) -> DescribeDelegationTokenResponse:
    wanted = tokens
    if owners is not None:
        wanted = [
            (token_id, token)
            for token_id, token in tokens
            if token.owner in owners or token.requester in owners or not owners.isdisjoint(token.renewers)
        ]
    return DescribeDelegationTokenResponse(
        tokens=[_described(context, rules, token_id, token) for token_id, token in visible_tokens(context, wanted)]
    )


def _described(
    context: BrokerRequestContext, rules: TokenRules, token_id: str, token: DelegationToken
) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *principal_of(token.owner),
        *requester_of(context, principal_of(token.requester)),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token_id,
        rules.hmac(token_id),
        [DescribedDelegationTokenRenewer(*principal_of(renewer)) for renewer in token.renewers],
    )


def refuse(
    context: BrokerRequestContext, request: DescribeDelegationTokenRequest, error: ErrorCode, message: str | None
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error)


API: Final = Api(
    key=DescribeDelegationTokenRequest.API_KEY,
    min_version=1,
    max_version=3,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on the token, or DESCRIBE_TOKENS on its owner, unless the client is its owner, requester or renewer",
)
