"""Envelope: v0.

Behavior:
- Carries a request that a client has sent to another broker, and that only the active controller can answer (KIP-590). The
  request is judged by the principal of that client. Requests of other kinds are refused (INVALID_REQUEST).
"""

from collections.abc import Awaitable
from inspect import isawaitable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.requests.api import Api, RequestContext, always
from odradek.broker.requests.listener import CLIENT, CONTROLLER, Listener
from odradek.broker.requests.session import Session
from odradek.cluster.authorizer import ANONYMOUS, Principal
from odradek.protocol.connection import parse_request
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from odradek.broker.dispatch.dispatcher import Call

NO_CONNECTION: Final = -1


def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | Awaitable[EnvelopeResponse]:
    services = context.services
    if not services.controller.is_active:
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    try:
        call = services.dispatcher.open(parse_request(request.request_data), _sender(context, request))
    except Malformed as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
    if not call.api.forward:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{call.api.name} is not for the controller")
    result = services.dispatcher.handle(call)
    return _later(context, call, result) if isawaitable(result) else _sealed(context, call, result)


def refuse(
    context: RequestContext, request: EnvelopeRequest, error: ErrorCode, message: str | None
) -> EnvelopeResponse:
    return EnvelopeResponse(None, error)


async def _later(context: RequestContext, call: "Call", answer: Awaitable[Any]) -> EnvelopeResponse:
    try:
        result = await answer
    except Exception as exception:  # noqa: BLE001  what goes wrong inside is told inside
        result = context.services.dispatcher.refused(call, exception)
    return _sealed(context, call, result)


def _sealed(context: RequestContext, call: "Call", result: Any) -> EnvelopeResponse:
    return EnvelopeResponse(b"".join(context.services.dispatcher.encode(call, result)))


def _sender(context: RequestContext, request: EnvelopeRequest) -> Session:
    """Who has sent the request inside: the broker that passed it on says so."""
    own = context.session.listener
    listener = Listener(own.name, own.host, own.port, own.advertised_host, own.advertised_port, (CLIENT,))
    kind, _, name = bytes(request.request_principal or b"").decode("utf-8", "replace").partition(":")
    packed = bytes(request.client_host_address)
    try:
        host = str(ip_address(packed)) if packed else context.session.client_host
    except ValueError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, "no client has such an address") from error
    return Session(NO_CONNECTION, listener, host, 0, Principal(kind, name) if name else ANONYMOUS)


API: Final = Api(
    key=EnvelopeRequest.API_KEY,
    min_version=0,
    max_version=0,
    request=EnvelopeRequest,
    response=EnvelopeResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
