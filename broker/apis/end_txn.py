"""EndTxn: commit or abort the transaction of a producer (KIP-98, KIP-890).

Behavior:
* The response is sent when the decision is committed to the coordinator's log. The coordinator writes the markers
  afterwards.
* If the former transaction of the transactional id is not complete yet, the response waits for it, at most about 1 s.
  After that the error is CONCURRENT_TRANSACTIONS.
* A retry of a request that has succeeded has the same response as the first attempt.

Errors:
* TRANSACTIONAL_ID_AUTHORIZATION_FAILED, then the error of the transaction coordinator (INVALID_PRODUCER_ID_MAPPING,
  PRODUCER_FENCED, INVALID_TXN_STATE, NOT_COORDINATOR and others).

Version notes:
* v2 knows PRODUCER_FENCED. v0 and v1 receive INVALID_PRODUCER_EPOCH instead (KIP-588).
* v3 is flexible. v4 knows TRANSACTION_ABORTABLE (KIP-890).
* v5 uses TV2: each end of a transaction raises the producer epoch, and the response contains the producer id and epoch
  to continue with. An abort without an open transaction succeeds. v0 to v4 use TV1, also if `transaction.version` is 2.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.futures import when_done
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.commands import TV2
from odradek.coordinator.txn.state import ProducerIdentity
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
