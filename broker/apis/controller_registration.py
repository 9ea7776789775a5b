"""ControllerRegistration: register an incarnation of a quorum voter with the active controller (KIP-919).

Behavior:
* The request has the voter's id, incarnation id, endpoints and supported features.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the controller (NOT_CONTROLLER and others).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.controller.messages.brokers import ControllerRegistration
from odradek.cluster.metadata.image import endpoints_of, supported_features_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


async def handle(
    context: QuorumRequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    context.require_node(request.controller_id)
    registration = ControllerRegistration(
        request.controller_id,
        request.incarnation_id,
        endpoints_of(request.listeners),
        supported_features_of(request.features),
    )
    await context.quorum.controller.register_controller(registration)
    return ControllerRegistrationResponse(error_message=None)


def refuse(
    context: QuorumRequestContext, request: ControllerRegistrationRequest, error: ErrorCode, message: str | None
) -> ControllerRegistrationResponse:
    return ControllerRegistrationResponse(error_code=error, error_message=message)


API: Final = Api(
    key=70,
    min_version=0,
    max_version=0,
    request=ControllerRegistrationRequest,
    response=ControllerRegistrationResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
