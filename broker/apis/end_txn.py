"""EndTxn: v0-5

Behavior:
* Answers as soon as the decision is committed to the coordinator's log; the markers are written after that.
* A request that meets an id whose last transaction is not complete yet waits for it for a bounded time, and is told
  CONCURRENT_TRANSACTIONS only after it.
* A retry of an end that has been carried out is answered like the first attempt.

Version notes:
* v2 PRODUCER_FENCED, which v0-1 get as INVALID_PRODUCER_EPOCH (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE may be
  answered · v5 is the second protocol generation (KIP-890): every end raises the epoch, the answer carries the identity
  to go on with, and an abort of nothing is allowed. v0-4 are the first generation, whatever the cluster's feature level
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.futures import when_done
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.commands import TV2, ProducerIdentity
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

TV2_MIN_VERSION: Final = 5


def handle(context: BrokerRequestContext, request: EndTxnRequest) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    tv2 = context.api_version >= TV2_MIN_VERSION
    identity = context.broker.transactions.end_txn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        client_version=TV2 if tv2 else 0,
    )
    if identity.done():
        return _response(identity.result(), tv2=tv2)
    return when_done(lambda: _response(identity.result(), tv2=tv2), identity)


def refuse(
    context: BrokerRequestContext, request: EndTxnRequest, error: ErrorCode, message: str | None
) -> EndTxnResponse:
    return EndTxnResponse(error_code=error)


def _response(identity: ProducerIdentity, *, tv2: bool) -> EndTxnResponse:
    if not tv2:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


API: Final = Api(
    key=26,
    min_version=0,
    max_version=5,
    request=EndTxnRequest,
    response=EndTxnResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on the transactional id",
)
