"""ExpireDelegationToken: let a delegation token expire after a period, or remove it (KIP-48).

Behavior:
* The request has the HMAC of the token. Its owner and its renewers may expire it, without an ACL.
* A negative period removes the token. Sessions that exist continue until their end.

Errors:
* Those of RenewDelegationToken. An expired token can be removed, but cannot get another expiration time.

Version notes:
* v2 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.security.token_requests import audited, check_connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(context: QuorumRequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    principal, hmac = str(context.session.principal), bytes(request.hmac)
    controller = context.quorum.controller
    token = controller.token(hmac)  # before the change, which can remove it
    change = controller.expire_token(principal, hmac, request.expiry_time_period_ms)
    expires_ms = await audited(context, token, change)
    return ExpireDelegationTokenResponse(ErrorCode.NONE, expires_ms)


def refuse(
    context: QuorumRequestContext, request: ExpireDelegationTokenRequest, error: ErrorCode, message: str | None
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error, -1)


API: Final = Api(
    key=ExpireDelegationTokenRequest.API_KEY,
    min_version=1,
    max_version=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    check=check_connection,
)
