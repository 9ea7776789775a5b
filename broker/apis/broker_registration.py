"""BrokerRegistration: register an incarnation of a broker with the active controller (KIP-631).

Behavior:
* The request has the broker's id, incarnation id, listeners, supported features, log directories and rack. The response
  has the broker epoch of the registration.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, INVALID_REGISTRATION for a migration from ZooKeeper, then the
  error of the controller (NOT_CONTROLLER, INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, UNSUPPORTED_VERSION).

Version notes:
* v1 has the flag of a migration from ZooKeeper, which this broker refuses. v2 has log directories (KIP-858). v3 has the
  former broker epoch (KIP-966). v4 lists features whose lowest supported level is 0 (KAFKA-17011).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.controller.messages.brokers import BrokerRegistration
from odradek.cluster.metadata.image import endpoints_of, supported_features_of
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(context: QuorumRequestContext, request: BrokerRegistrationRequest) -> Awaitable[BrokerRegistrationResponse]:
    context.require_node(request.broker_id)
    if request.is_migrating_zk_broker:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "migration from ZooKeeper is not supported")
    registration = BrokerRegistration(
        request.broker_id,
        request.cluster_id,
        request.incarnation_id,
        endpoints_of(request.listeners),
        supported_features_of(request.features),
        tuple(request.log_dirs),
        request.rack or None,
        request.previous_broker_epoch,
    )
    return _response(context.quorum.controller.register_broker(registration))


async def _response(epoch: Awaitable[int]) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(broker_epoch=await epoch)


def refuse(
    context: QuorumRequestContext, request: BrokerRegistrationRequest, error: ErrorCode, message: str | None
) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error)


API: Final = Api(
    key=BrokerRegistrationRequest.API_KEY,
    min_version=0,
    max_version=4,
    request=BrokerRegistrationRequest,
    response=BrokerRegistrationResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
