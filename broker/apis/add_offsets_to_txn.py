"""AddOffsetsToTxn: add the offsets partition of a consumer group to a producer's transaction (KIP-98).

Behavior:
* The partition of `__consumer_offsets` that holds the group becomes part of the transaction, so that the transaction's
  marker reaches it. Producers of TV2 (KIP-890) do not send this request: TxnOffsetCommit v5 adds the partition.
* If the former transaction of the transactional id is not complete yet, the response waits for it, at most about 1 s.
  After that the error is CONCURRENT_TRANSACTIONS.

Errors:
* TRANSACTIONAL_ID_AUTHORIZATION_FAILED, then GROUP_AUTHORIZATION_FAILED, then the error of the transaction coordinator.
* CONCURRENT_TRANSACTIONS also if the coordinator has no capacity for a further partition of the client
  (`PARTITIONS_MAX`). Clients retry it, and Kafka has no such limit.

Version notes:
* v2 knows PRODUCER_FENCED. v0 and v1 receive INVALID_PRODUCER_EPOCH instead (KIP-588).
* v3 is flexible. v4 knows TRANSACTION_ABORTABLE (KIP-890).
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
