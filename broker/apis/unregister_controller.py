"""UnregisterController: remove the registration of a controller that does not return (KIP-1312).

Behavior:
* The controller remains a voter: `controller.quorum.voters` configures the voters.
* A controller that still runs registers again at its next start.

Errors:
* CLUSTER_AUTHORIZATION_FAILED. INVALID_REQUEST if the controller is the active one. UNSUPPORTED_VERSION if
  `metadata.version` is below 33. CONTROLLER_ID_NOT_REGISTERED.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


async def handle(context: QuorumRequestContext, request: UnregisterControllerRequest) -> UnregisterControllerResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=(f"controller {request.controller_id}",)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    await context.quorum.controller.unregister_controller(request.controller_id)
    return UnregisterControllerResponse(error_message=None)


def refuse(
    context: QuorumRequestContext, request: UnregisterControllerRequest, error: ErrorCode, message: str | None
) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(error_code=error, error_message=message)


API: Final = Api(
    key=94,
    min_version=0,
    max_version=0,
    request=UnregisterControllerRequest,
    response=UnregisterControllerResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
