"""UnregisterBroker: remove the registration of a broker that does not return (KIP-631).

Behavior:
* The broker leads no partition afterwards and is in no ISR. It remains in the replica lists until the partitions are
  reassigned.
* A broker that still runs registers again.

Errors:
* CLUSTER_AUTHORIZATION_FAILED, BROKER_ID_NOT_REGISTERED.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(context: QuorumRequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=(f"broker {request.broker_id}",)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    await context.quorum.controller.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse(error_message=None)


def refuse(
    context: QuorumRequestContext, request: UnregisterBrokerRequest, error: ErrorCode, message: str | None
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)


API: Final = Api(
    key=64,
    min_version=0,
    max_version=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    acl="ALTER on the cluster",
)
