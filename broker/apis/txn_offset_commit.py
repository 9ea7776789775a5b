"""TxnOffsetCommit: commit offsets of a group as part of a transaction (KIP-98, KIP-447).

Behavior:
* As for Produce, the transaction coordinator first verifies that the group's partition of `__consumer_offsets` belongs
  to the transaction (up to v4), or adds it (from v5, KIP-890). The append then presents the verification guard that the
  log issued before. If the transaction has ended in between, the guard is invalid and the request fails (KAFKA-15784).
* The offsets are pending until the transaction commits. Until then, OffsetFetch returns the former offsets, or
  UNSTABLE_OFFSET_COMMIT with `RequireStable`.
* Partitions that do not exist have their own error, and do not prevent the commit of the others.
* The stored record contains the topic id in every version. If a topic is deleted and created again, the offsets of the
  former topic are not used.

Errors:
* For each partition: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED,
  UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID, the error of the transaction coordinator
  (INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH), then the error of the group coordinator
  (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH, NOT_COORDINATOR).

Version notes:
* v2 has leader epochs (KIP-320), and knows COORDINATOR_LOAD_IN_PROGRESS. v0 and v1 receive COORDINATOR_NOT_AVAILABLE
  instead.
* v3 is flexible, and has member id, generation and group instance id of the consumer (KIP-447).
* v4 knows TRANSACTION_ABORTABLE. v0 to v3 receive INVALID_TXN_STATE instead. v5 adds the partition implicitly (TV2,
  KIP-890).
* v6 has topic ids instead of names, and knows GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319). Earlier versions
  receive ILLEGAL_GENERATION instead of both.
"""

from collections.abc import Awaitable, Hashable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import (
    allowed_topics,
    caller_of,
    check_group,
    merge_topics,
    split_existing,
    topic_error,
)
from odradek.broker.coordinators.txn_verification import Outcome, Terms, TransactionalBatch
from odradek.broker.requests.api import Api, split_by
from odradek.broker.requests.error_map import wire_error
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.batch import NO_SEQUENCE
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace_fields

IMPLICIT_ADD_MIN_VERSION: Final = 5
TOPIC_IDS_MIN_VERSION: Final = 6

_E = ErrorCode
_RESPONSE_ERRORS: Final = {
    _E.PRODUCER_FENCED: _E.INVALID_PRODUCER_EPOCH,
    _E.CLUSTER_AUTHORIZATION_FAILED: _E.INVALID_TXN_STATE,
    # With this error, clients retry with the same coordinator, without FindCoordinator.
    _E.NETWORK_EXCEPTION: _E.COORDINATOR_LOAD_IN_PROGRESS,
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
}
"""Error of the log or of the transaction coordinator -> error in the response."""


def handle(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    check_group(context, AclOperation.READ, request.group_id)
    refused, accepted = _split(context, request)
    if not accepted:
        return TxnOffsetCommitResponse(topics=merge_topics(refused, (), _key))
    return _commit(context, replace_fields(request, topics=accepted), _verify(context, request), refused)


def _split(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest
) -> tuple[list[TxnOffsetCommitResponseTopic], list[TxnOffsetCommitRequestTopic]]:
    """Return the results of refused partitions, and the topics to commit with both their names and their ids."""
    image = context.node.metadata.image
    by_id = context.api_version >= TOPIC_IDS_MIN_VERSION
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        if by_id:
            topic.name = "" if found is None else found.name
        else:
            topic.topic_id = ZERO_UUID if found is None else found.topic_id
    allowed = allowed_topics(context, AclOperation.READ, (topic.name for topic in request.topics), by_id=by_id)
    refused: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        error = topic_error(image, allowed, topic.name) if topic.name or not by_id else ErrorCode.UNKNOWN_TOPIC_ID
        existing, missing = split_existing(image, topic.name, topic.partitions)
        if error is not ErrorCode.NONE:
            refused.append(_refused(topic, topic.partitions, error))
            continue
        if missing:
            refused.append(_refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if existing:
            accepted.append(replace_fields(topic, partitions=existing))
    return refused, accepted


def refuse(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest, error: ErrorCode, message: str | None
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refused(topic, topic.partitions, error) for topic in request.topics])


def _verify(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest
) -> "list[Outcome] | Awaitable[list[Outcome]]":
    if not request.group_id:
        return [Refusal(ErrorCode.INVALID_GROUP_ID)]
    try:
        partition = context.broker.partitions.find(
            CONSUMER_OFFSETS, context.broker.groups.partition_of(request.group_id)
        )
    except Refusal as refusal:
        return [refusal]
    batch = TransactionalBatch(partition, request.producer_id, request.producer_epoch, NO_SEQUENCE)
    terms = Terms(context.api_version >= IMPLICIT_ADD_MIN_VERSION, _refusal)
    return context.broker.verifier.start(request.transactional_id, terms, [batch])


def _refusal(error: ErrorCode) -> Refusal:
    return Refusal(_RESPONSE_ERRORS.get(error, error))


async def _commit(
    context: BrokerRequestContext,
    request: TxnOffsetCommitRequest,
    verified: "list[Outcome] | Awaitable[list[Outcome]]",
    refused: list[TxnOffsetCommitResponseTopic],
) -> TxnOffsetCommitResponse:
    try:
        response = await _commit_verified(context, request, verified)
    except Refusal as refusal:
        error = wire_error(context.api_key, context.api_version, refusal.error)
        response = refuse(context, request, error, refusal.message)
    return replace_fields(response, topics=merge_topics(refused, response.topics, _key))


def _key(topic: TxnOffsetCommitResponseTopic) -> Hashable:
    return topic.name, topic.topic_id


async def _commit_verified(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest, verified: "list[Outcome] | Awaitable[list[Outcome]]"
) -> TxnOffsetCommitResponse:
    """Commit the offsets after the verification. Raise Refusal with the error of the whole commit."""
    (outcome,) = verified if isinstance(verified, list) else await verified
    if isinstance(outcome, Refusal):
        raise _refusal(outcome.error)
    return await context.broker.groups.commit_offsets_in_transaction(request, caller_of(context), outcome)


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    results = [TxnOffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]
    return TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, results)


API: Final = Api(
    key=28,
    min_version=0,
    max_version=6,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="WRITE on the transactional id; READ on the group and on each topic",
)
