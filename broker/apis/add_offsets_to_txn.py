"""AddOffsetsToTxn: v0-4

Behavior:
* Adds the group's partition of `__consumer_offsets` to the transaction, so that its end reaches the group. Producers of the
  second protocol generation do not send it: their TxnOffsetCommit adds the partition itself.
* A transaction that waits for the markers of its predecessor is waited for, see EndTxn.

Version notes:
* v2 PRODUCER_FENCED, which v0-1 get as INVALID_PRODUCER_EPOCH (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE may be answered
"""

from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import check_group
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.commands import PartitionErrors
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(
    context: BrokerRequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    check_group(context, AclOperation.READ, request.group_id)
    added = context.broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(CONSUMER_OFFSETS, context.broker.groups.partition_of(request.group_id))],
        client_id=context.client_id,
    )
    return _response(context, added.result()) if added.done() else _later(context, added)


def refuse(
    context: BrokerRequestContext, request: AddOffsetsToTxnRequest, error: ErrorCode, message: str | None
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)


async def _later(context: BrokerRequestContext, added: Future[PartitionErrors]) -> AddOffsetsToTxnResponse:
    return _response(context, await added)


def _response(context: BrokerRequestContext, errors: PartitionErrors) -> AddOffsetsToTxnResponse:
    (error,) = errors.values()
    return AddOffsetsToTxnResponse(error_code=wire_error(context.api_key, context.api_version, error))


API: Final = Api(
    key=25,
    min_version=0,
    max_version=4,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on the transactional id; READ on the group",
)
