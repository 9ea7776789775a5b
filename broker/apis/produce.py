"""Produce: v3-13, announced from v0 (KAFKA-18659: librdkafka decides by it what a broker can do; v0-2 are refused).

Behavior:
- One batch per partition, checked and appended as received. A bad one is refused for its partition alone.
- Stage one (in the order of the connection): checks, transaction verification, append. Stage two: waiting for the
  commit.
- acks=all (-1) waits for the high watermark; acks=1 waits for this broker, which means for the flush where
  `flush.messages` asks for one; acks=0 gets no response, and an error closes the connection, since nothing else can
  tell.
- A batch that is already there (one of the producer's last five) is answered like the first time, and not written
  again.
- Transactional batches: see `odradek.broker.coordinators.txn_verification`.
- A partition knows a bounded number of producers. Who has been silent longest makes room for a new one, but nobody who
  was heard of in the last quarter of an hour: then the new one is told NOT_ENOUGH_REPLICAS, with the reason in words,
  and tries again.

Version notes:
- v3 transactional id; v4 KAFKA_STORAGE_ERROR; v5 log start offset; v7 zstd (KIP-110); v8 record errors and messages
  (KIP-467); v9 flexible; v10 leader hints (KIP-951); v11 TRANSACTION_ABORTABLE; v12 implicit add of partitions to the
  transaction (KIP-890 part 2); v13 topic ids (KIP-516).
"""

from asyncio import Future
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.txn_verification import Outcome, TransactionalBatch, produce_terms
from odradek.broker.fetch.leader_hint import leader_hint
from odradek.broker.fetch.produce_checks import is_transactional, producer_of, single_batch
from odradek.broker.fetch.read import UNKNOWN_OFFSET
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.waiters import CommitCallback, CommitWait
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.topic_names import is_internal
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.schema import Buffer
from odradek.protocol.special_values import ACKS_ALL
from odradek.storage.batches.record_errors import RecordsRefused
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import NO_GUARD

ACKS_NONE: Final = 0
VALID_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
TOPIC_ID_MIN_VERSION: Final = 13
LEADER_HINT_MIN_VERSION: Final = 10
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics."""
NO_LEADER_KNOWN: Final = LeaderIdAndEpoch()
WITHOUT_LOG_START: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Refused with log start -1; all other refusals of a log say where it starts."""
EXPLAINED: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.NOT_ENOUGH_REPLICAS)
"""What is wrong with the records themselves is told in words (KIP-467), and that there is no room for another producer."""
LOG: Final = structlog.get_logger(__name__)

Response = ProduceResponse | None


@dataclass(slots=True)
class _Entry:
    """One partition's batch that has passed the checks, and its answer, which is filled in on the way."""

    topic: str
    partition: Partition
    records: Buffer
    answer: PartitionProduceResponse
    outcome: Outcome = NO_GUARD


@dataclass(slots=True)
class _Produce:
    """One request on its way."""

    context: BrokerRequestContext
    acks: int
    timeout_ms: int
    response: ProduceResponse
    entries: list[_Entry]


def handle(
    context: BrokerRequestContext, request: ProduceRequest
) -> Response | Awaitable[Response] | Ordered[ProduceResponse]:
    transactional = any(is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data)
    if transactional and not _may_transact(context, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    produce = _Produce(context, request.acks, request.timeout_ms, ProduceResponse(), [])
    for topic in request.topic_data:
        _survey(produce, topic)
    if request.acks not in VALID_ACKS:
        for entry in produce.entries:
            _refuse(produce, entry.answer, entry.topic, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
        return produce.response
    if transactional and produce.entries:
        outcomes = _verify(produce, request.transactional_id)
        if outcomes is not None:
            return Ordered(when_done(lambda: _append_verified(produce, outcomes.result()), outcomes))
    return _append(produce)


def refuse(
    context: BrokerRequestContext, request: ProduceRequest, error: ErrorCode, message: str | None
) -> ProduceResponse | None:
    response = ProduceResponse()
    produce = _Produce(context, request.acks, request.timeout_ms, response, [])
    for topic in request.topic_data:
        answers = [_answer(data.index) for data in topic.partition_data]
        response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        for answer in answers:
            _refuse(produce, answer, topic.name, Refusal(error))
    return _finish(produce)


# ---- stage one ------------------------------------------------------------------------------------------------------


def _may_transact(context: BrokerRequestContext, transactional_id: str | None) -> bool:
    return transactional_id is not None and context.allowed(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _answer(index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, 0, UNKNOWN_OFFSET, -1, UNKNOWN_OFFSET, [], None, NO_LEADER_KNOWN)


def _survey(produce: _Produce, topic: TopicProduceData) -> None:
    """An answer for every partition of `topic`, and an entry for each one whose batch may be appended."""
    context = produce.context
    partitions = context.broker.partitions
    by_id = context.api_version >= TOPIC_ID_MIN_VERSION
    name = topic.name
    if by_id:
        image = context.node.metadata.image.topic_by_id(topic.topic_id)
        name = image.name if image is not None else ""
    told = TopicProduceResponse(topic.name, topic.topic_id, [])
    produce.response.responses.append(told)
    allowed = not name or context.allowed(AclOperation.WRITE, ResourceType.TOPIC, name)
    internal = is_internal(name) and context.client_id != ADMIN_CLIENT_ID
    for data in topic.partition_data:
        answer = _answer(data.index)
        told.partition_responses.append(answer)
        try:
            if not allowed:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if by_id:
                partition = partitions.find_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.find(name, data.index)
            records = single_batch(data.records, context.api_version)
            if internal:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
            produce.entries.append(_Entry(name, partition, records, answer))
        except Refusal as refusal:
            _refuse(produce, answer, name, refusal)


def _verify(produce: _Produce, transactional_id: str | None) -> Future[list[Outcome]] | None:
    """Give each transactional entry its outcome; a future of them when the coordinator is waited for."""
    entries = _transactional(produce)
    if not entries:
        return None
    batches = [TransactionalBatch(entry.partition, *producer_of(entry.records)) for entry in entries]
    terms = produce_terms(produce.context.api_version)
    outcomes = produce.context.broker.verifier.start(transactional_id, terms, batches)
    if isinstance(outcomes, Future):
        return outcomes
    _note(entries, outcomes)
    return None


def _transactional(produce: _Produce) -> list[_Entry]:
    return [entry for entry in produce.entries if is_transactional(entry.records)]


def _note(entries: Sequence[_Entry], outcomes: Sequence[Outcome]) -> None:
    for entry, outcome in zip(entries, outcomes, strict=True):
        entry.outcome = outcome


def _append_verified(produce: _Produce, outcomes: Sequence[Outcome]) -> "Response | Awaitable[Response]":
    _note(_transactional(produce), outcomes)
    return _append(produce)


def _append(produce: _Produce) -> "Response | Awaitable[Response]":
    acks = produce.acks
    now_ms = produce.context.now_ms
    waiting: list[tuple[_Entry, int]] = []
    for entry in produce.entries:
        answer, partition, outcome = entry.answer, entry.partition, entry.outcome
        try:
            if isinstance(outcome, Refusal):
                answer.error_message = outcome.message
                raise outcome
            info = partition.append(entry.records, origin=Origin.CLIENT, now_ms=now_ms, guard=outcome, acks=acks)
        except Refusal as refusal:
            if not isinstance(outcome, Refusal) and refusal.error not in WITHOUT_LOG_START:
                answer.log_start_offset = partition.log.log_start_offset
            _refuse(produce, answer, entry.topic, refusal)
            continue
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time
        answer.log_start_offset = info.log_start_offset
        end = info.last_offset + 1
        reached = partition.log.high_watermark if acks == ACKS_ALL else partition.watermarks.acknowledged_offset
        if acks != ACKS_NONE and (reached < end or not partition.leads):
            waiting.append((entry, end))
        elif acks == ACKS_ALL and not partition.maximal_isr_suffices:
            _set_error(produce, answer, entry.topic, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    if waiting:
        return _commit(produce, waiting)
    return _finish(produce)


# ---- stage two ------------------------------------------------------------------------------------------------------


def _commit(produce: _Produce, waiting: list[tuple[_Entry, int]]) -> Awaitable[Response]:
    wait: CommitWait[Response] = CommitWait(produce.response)
    for entry, end in waiting:
        partition = entry.partition
        settle = _settler(produce, entry)
        if produce.acks == ACKS_ALL:
            partition.await_commit(wait, end, settle)
        else:
            partition.await_acknowledged(wait, end, settle)
    return wait.start(produce.timeout_ms)


def _settler(produce: _Produce, entry: _Entry) -> CommitCallback:
    def settle(error: ErrorCode) -> None:
        partition = entry.partition
        if error is ErrorCode.NONE and produce.acks == ACKS_ALL and not partition.maximal_isr_suffices:
            _set_error(produce, entry.answer, entry.topic, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        elif error is not ErrorCode.NONE:
            _set_error(produce, entry.answer, entry.topic, error)

    return settle


# ---- answers --------------------------------------------------------------------------------------------------------


def _refuse(produce: _Produce, answer: PartitionProduceResponse, topic: str, refusal: Refusal) -> None:
    answer.base_offset = UNKNOWN_OFFSET
    if refusal.error in EXPLAINED:
        answer.error_message = refusal.message
    if isinstance(refusal, RecordsRefused):
        answer.record_errors = [BatchIndexAndErrorMessage(index, text) for index, text in refusal.record_errors]
    _set_error(produce, answer, topic, refusal.error)


def _set_error(produce: _Produce, answer: PartitionProduceResponse, topic: str, error: ErrorCode) -> None:
    context = produce.context
    answer.error_code = wire_error(context.api_key, context.api_version, error)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= LEADER_HINT_MIN_VERSION:
        _add_hint(produce, answer, topic)


def _add_hint(produce: _Produce, answer: PartitionProduceResponse, topic: str) -> None:
    context = produce.context
    hint = leader_hint(context.node.metadata.image, context.session.listener.name, topic, answer.index)
    if hint is None:
        return
    answer.current_leader = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
    endpoints = produce.response.node_endpoints
    if hint.endpoint is not None and all(known.node_id != hint.leader_id for known in endpoints):
        endpoints.append(NodeEndpoint(hint.leader_id, hint.endpoint.host, hint.endpoint.port, hint.rack))


def _finish(produce: _Produce) -> ProduceResponse | None:
    if produce.acks != ACKS_NONE:
        return produce.response
    errors = [
        f"{topic.name or topic.topic_id}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic in produce.response.responses
        for answer in topic.partition_responses
        if answer.error_code
    ]
    if errors:
        produce.context.session.close(f"produce with acks=0 failed: {', '.join(errors)}")
    return None


API: Final = Api(
    key=ProduceRequest.API_KEY,
    min_version=3,
    max_version=13,
    announced_min=0,
    request=ProduceRequest,
    response=ProduceResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on each topic; WRITE on the transactional id for transactional batches",
)
