"""InitProducerId: give a producer its producer id and epoch (KIP-98, KIP-360).

Behavior:
* Without a transactional id, the producer receives a new producer id with epoch 0.
* With a transactional id, the coordinator raises the epoch and first aborts an ongoing transaction of the id. The
  response waits for that abort, at most about 1 s. After that the error is CONCURRENT_TRANSACTIONS. Kafka responds with
  that error immediately, and the producer retries.
* With Enable2Pc, the transactions of the producer never time out (KIP-939). The transaction time-out is ignored.
* With KeepPreparedTxn, an ongoing transaction is kept, not aborted. The response has its producer id and epoch. The
  returned producer id and epoch are for EndTxn v5 only: the producer can commit or abort the transaction.

Errors:
* TRANSACTIONAL_ID_AUTHORIZATION_FAILED, or CLUSTER_AUTHORIZATION_FAILED without a transactional id.
* COORDINATOR_LOAD_IN_PROGRESS while the broker waits for a block of producer ids (KAFKA-14417).
* COORDINATOR_NOT_AVAILABLE for a new transactional id if its partition of `__transaction_state` has 20,000 ids already,
  or if the client has created more of them than its share. Producers retry after this error. The coordinator removes no
  id before `transactional.id.expiration.ms`, unless an operator does (DescribeTransactions).
* TRANSACTIONAL_ID_AUTHORIZATION_FAILED also for Enable2Pc, if `transaction.two.phase.commit.enable` is false or if the
  principal lacks TWO_PHASE_COMMIT. UNSUPPORTED_VERSION below transaction.version 2, for v6 with one of its two fields.
* Other errors of the transaction coordinator: INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, NOT_COORDINATOR and others.

Version notes:
* v2 is flexible. v3 has the producer id and epoch of a producer that recovers from an error (KIP-360).
* v4 knows PRODUCER_FENCED. v0 to v3 receive INVALID_PRODUCER_EPOCH instead (KIP-588).
* v5 knows TRANSACTION_ABORTABLE (KIP-890).
* v6 has Enable2Pc and KeepPreparedTxn (KIP-939). Kafka 4.4 marks it as unstable. A broker serves and announces it if
  `transaction.two.phase.commit.enable` is true.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Gated
from odradek.broker.requests.futures import when_done
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.commands import RecoveredProducer
from odradek.coordinator.txn.state import ProducerIdentity
from odradek.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

R = TypeVar("R")


def handle(
    context: BrokerRequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    _check_allowed(context, request)
    coordinator = context.broker.transactions
    if request.keep_prepared_txn and request.transactional_id is not None:
        return _requested(coordinator.recover_producer, context, request, _recovered)
    return _requested(coordinator.init_producer_id, context, request, _response)


def _requested(
    method: Callable[..., Future[R]],
    context: BrokerRequestContext,
    request: InitProducerIdRequest,
    make_response: Callable[[R], InitProducerIdResponse],
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Call a method of the coordinator with the fields of the request, and respond with its result."""
    result = method(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        two_phase_commit=request.enable2_pc,
        client_id=context.client_id,
        address=context.session.client_host,
    )
    if result.done():
        return make_response(result.result())
    return when_done(lambda: make_response(result.result()), result)


def refuse(
    context: BrokerRequestContext, request: InitProducerIdRequest, error: ErrorCode, message: str | None
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _check_allowed(context: BrokerRequestContext, request: InitProducerIdRequest) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        needed = [AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT] if request.enable2_pc else [AclOperation.WRITE]
        for operation in needed:
            if not context.allowed(operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
                raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if context.permits_any(AclOperation.WRITE, ResourceType.TOPIC):
        return
    if not context.allowed_on_cluster(AclOperation.IDEMPOTENT_WRITE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _response(identity: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


def _recovered(producer: RecoveredProducer) -> InitProducerIdResponse:
    response = _response(producer.identity)
    if producer.ongoing is not None:
        response.ongoing_txn_producer_id = producer.ongoing.producer_id
        response.ongoing_txn_producer_epoch = producer.ongoing.producer_epoch
    return response


API: Final = Api(
    key=22,
    min_version=0,
    max_version=5,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on the transactional id, and TWO_PHASE_COMMIT for Enable2Pc; without a transactional id:"
    " IDEMPOTENT_WRITE on the cluster, or WRITE on an existing topic",
    gated=Gated(6, "transaction.two.phase.commit.enable"),
)
