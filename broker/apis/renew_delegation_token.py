"""RenewDelegationToken: let a delegation token expire later (KIP-48).

Behavior:
* The request has the HMAC of the token. Its owner and its renewers may renew it, without an ACL.
* It expires after the requested period, at most `delegation.token.expiry.time.ms`, and not after its maximum lifetime.

Errors:
* DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and DELEGATION_TOKEN_AUTH_DISABLED as for CreateDelegationToken.
* DELEGATION_TOKEN_NOT_FOUND for an unknown HMAC, and for a token that the client may not list
  (DescribeDelegationToken): it does not learn that the token exists. Apache Kafka responds with the errors below.
* DELEGATION_TOKEN_OWNER_MISMATCH for other principals that may list the token, super users included.
* DELEGATION_TOKEN_EXPIRED.

Version notes:
* v2 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.security.token_requests import audited, check_connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(context: QuorumRequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    principal, hmac = str(context.session.principal), bytes(request.hmac)
    controller = context.quorum.controller
    change = controller.renew_token(principal, hmac, request.renew_period_ms)
    expires_ms = await audited(context, controller.token(hmac), change)
    return RenewDelegationTokenResponse(ErrorCode.NONE, expires_ms)


def refuse(
    context: QuorumRequestContext, request: RenewDelegationTokenRequest, error: ErrorCode, message: str | None
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error, -1)


API: Final = Api(
    key=RenewDelegationTokenRequest.API_KEY,
    min_version=1,
    max_version=2,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    check=check_connection,
)
