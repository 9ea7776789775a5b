"""BrokerRegistration: v0-4.

Behavior:
- A broker says to the active controller who it is, where it listens and what it can do (KIP-631). The answer is its epoch.

Version notes:
- v1 migration from ZooKeeper, which is refused; v2 log directories (KIP-858); v3 the epoch before (KIP-966); v4 features
  whose lowest level is 0.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.brokers import BrokerRegistration
from odradek.cluster.metadata.image import Endpoint, VersionRange
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(context: QuorumRequestContext, request: BrokerRegistrationRequest) -> Awaitable[BrokerRegistrationResponse]:
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.is_migrating_zk_broker:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "there is no ZooKeeper to migrate from")
    registration = BrokerRegistration(
        request.broker_id,
        request.cluster_id,
        request.incarnation_id,
        tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners),
        {each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in request.features},
        tuple(request.log_dirs),
        request.rack or None,
        request.previous_broker_epoch,
    )
    return _answer(context.quorum.controller.register_broker(registration))


async def _answer(epoch: Awaitable[int]) -> BrokerRegistrationResponse:
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
