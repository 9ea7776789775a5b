"""AllocateProducerIds: give a broker a block of producer ids (KIP-730).

Behavior:
* The active controller writes each block to the metadata log before it responds, so no producer id is given twice.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the controller (NOT_CONTROLLER,
  STALE_BROKER_EPOCH).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.controller.messages.brokers import ProducerIdBlock
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def handle(
    context: QuorumRequestContext, request: AllocateProducerIdsRequest
) -> Awaitable[AllocateProducerIdsResponse]:
    context.require_node(request.broker_id)
    return _response(context.quorum.controller.allocate_producer_ids(request.broker_id, request.broker_epoch))


async def _response(allocation: Awaitable[ProducerIdBlock]) -> AllocateProducerIdsResponse:
    block = await allocation
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.length)


def refuse(
    context: QuorumRequestContext, request: AllocateProducerIdsRequest, error: ErrorCode, message: str | None
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error)


API: Final = Api(
    key=AllocateProducerIdsRequest.API_KEY,
    min_version=0,
    max_version=0,
    request=AllocateProducerIdsRequest,
    response=AllocateProducerIdsResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
