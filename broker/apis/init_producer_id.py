"""InitProducerId: v0-5

Behavior:
* Without a transactional id: a fresh producer id with epoch 0, whatever else the request says.
* With one: the epoch rises and an ongoing transaction of the id is aborted first. Kafka answers CONCURRENT_TRANSACTIONS
  then and the client comes again; here the request waits for the abort for a bounded time, and answers that only after
  it.
* A new id where there are 20,000 in its partition of `__transaction_state`: COORDINATOR_NOT_AVAILABLE, which makes
  clients come again. None is forgotten to make room for it before `transactional.id.expiration.ms`.
* COORDINATOR_LOAD_IN_PROGRESS while the broker waits for a block of producer ids (KAFKA-14417).

Version notes:
* v2 flexible · v3 producer id and epoch of a producer that recovers (KIP-360) · v4 PRODUCER_FENCED, which v0-3 get as
  INVALID_PRODUCER_EPOCH (KIP-588) · v5 TRANSACTION_ABORTABLE may be answered (KIP-890)

Known gaps: v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not announced. A producer without
IDEMPOTENT_WRITE is let in by WRITE on a topic that exists; an ACL for a topic yet to be made does not count.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.futures import when_done
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.commands import ProducerIdentity
from odradek.coordinator.txn.epochs import NO_EPOCH
from odradek.protocol.batch import NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    context: BrokerRequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    _check_allowed(context, request.transactional_id)
    identity = context.broker.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        client_id=context.client_id,
    )
    if identity.done():
        return _response(identity.result())
    return when_done(lambda: _response(identity.result()), identity)


def refuse(
    context: BrokerRequestContext, request: InitProducerIdRequest, error: ErrorCode, message: str | None
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _check_allowed(context: BrokerRequestContext, transactional_id: str | None) -> None:
    if transactional_id is not None:
        if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if context.allowed_on_cluster(AclOperation.IDEMPOTENT_WRITE):
        return
    topics = list(context.node.metadata.image.topics)
    if not context.split_allowed(AclOperation.WRITE, ResourceType.TOPIC, topics)[0]:
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _response(identity: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


API: Final = Api(
    key=22,
    min_version=0,
    max_version=5,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
    gaps=("v6 (two-phase commit, KIP-939)",),
)
