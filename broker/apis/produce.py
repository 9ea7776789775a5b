"""Produce: append record batches to partitions.

Behavior:
* Each partition has one batch, which is checked and appended unchanged. An invalid batch fails its partition only.
* If a request names a partition more than once, its last batch counts, and the response has one result for it. Kafka
  does the same. It also appends the last valid batch if another one has an invalid format, and responds with the error.
* Stage one, in the order of the connection's requests: checks, verification of the transaction, append. Stage two: the
  wait for the acknowledgment.
* acks=all (-1) waits for the high watermark. acks=1 waits for the leader: for its append, or for its flush if
  `flush.messages` is set. acks=0 has no response: an error closes the connection.
* A duplicate of one of the producer's last five batches is not appended. Its response is that of the first attempt.
* Records are checked or converted if the topic requires it. A check of more than one slice suspends the connection:
  its later requests wait, so the order of its batches does not change (docs/decisions/0072-bounded-record-work.md).
* Transactional batches are verified (KIP-890): see `odradek.broker.coordinators.txn_verification`.
* A partition stores a bounded number of producer states. A new producer replaces the one that was idle longest, if that
  was at least 15 minutes. Otherwise the new producer receives NOT_ENOUGH_REPLICAS with an error message, and retries.

Errors:
* For the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, CORRUPT_MESSAGE,
  INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE (also for records that exceed their bounds when decompressed),
  INVALID_TOPIC_EXCEPTION for internal topics, INVALID_REQUIRED_ACKS, the error of the verification,
  NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
  KAFKA_STORAGE_ERROR; after the append REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
* INVALID_RECORD also if `__admin_client` sends another record to `__transaction_state` or
  `__consumer_offsets` than a tombstone, or a batch of more than 100 records or 64 KiB. Kafka appends any record.

Version notes:
* v0 to v2 are announced but refused, as in Kafka: librdkafka derives features from the announced versions
  (KAFKA-18659).
* v3 has the transactional id. v4 knows KAFKA_STORAGE_ERROR. v5 has the log start offset. v7 may have zstd batches
  (KIP-110). v8 has record errors and error messages (KIP-467). v9 is flexible. v10 has hints to the current leader
  (KIP-951).
* v11 knows TRANSACTION_ABORTABLE. v12 adds partitions to the transaction implicitly (TV2, KIP-890). v13 has topic ids
  (KIP-516).
"""

from asyncio import CancelledError, Future
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.internal_appends import check_client_append
from odradek.broker.coordinators.txn_verification import Outcome, TransactionalBatch, produce_terms
from odradek.broker.fetch.leader_hint import leader_hint
from odradek.broker.fetch.produce_checks import (
    is_transactional,
    keep_last_batches,
    producer_of,
    single_batch,
)
from odradek.broker.partition.new_logs import Key, with_open_logs
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.waiters import CommitCallback, CommitWait
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.client_shares import client_of
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
from odradek.protocol.special_values import ACKS_ALL, UNKNOWN_OFFSET
from odradek.storage.batches.record_checks import SLICE_UNITS, RecordCheckPending
from odradek.storage.batches.record_errors import RECORD_ERRORS_MAX, RecordsRefused
from odradek.storage.batches.validation import CheckedBatch
from odradek.storage.batches.work import WorkSlice
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import NO_GUARD

ACKS_NONE: Final = 0
VALID_ACKS: Final = (ACKS_ALL, ACKS_NONE, 1)
TOPIC_ID_MIN_VERSION: Final = 13
LEADER_HINT_MIN_VERSION: Final = 10
ENTRIES_PER_TURN: Final = 64
"""Maximum batches that one request appends between two turns of the event loop. An append takes about 50 µs."""
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Client id that may write to internal topics, as in Kafka (KafkaApis.handleProduceRequest)."""
NO_LEADER_HINT: Final = LeaderIdAndEpoch()
WITHOUT_LOG_START: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors of an append whose result has the log start offset -1.

Results with other errors contain the log start offset.
"""
ERRORS_WITH_MESSAGE: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.NOT_ENOUGH_REPLICAS)
"""Errors with an error message: invalid records (KIP-467), and too many producers in the partition."""
_logger = structlog.get_logger(__name__)

Response = ProduceResponse | None
Result = Response | Awaitable[Response] | Ordered[ProduceResponse]


@dataclass(slots=True)
class _Entry:
    """Batch of one partition that has passed the checks, and the result that is filled in for it."""

    topic: str
    partition: Partition
    records: Buffer
    result: PartitionProduceResponse
    internal: bool = False
    """True if the topic is internal, and its records have to be checked (`check_client_append`)."""
    outcome: Outcome = NO_GUARD


@dataclass(slots=True)
class _Produce:
    """Produce request: its response, and the batches to append."""

    context: BrokerRequestContext
    acks: int
    timeout_ms: int
    response: ProduceResponse
    entries: list[_Entry]
    appended: int = 0
    """Number of entries that were appended or refused."""
    commits: CommitWait[Response] | None = None
    """Wait for the acknowledgment of entries that were appended. Each entry joins it in the step that appends its
    batch: the watermark can advance before the last entry is appended."""
    work: WorkSlice = field(default_factory=partial(WorkSlice, SLICE_UNITS))
    """Work on records since the last turn of the event loop, over all entries."""


def handle(context: BrokerRequestContext, request: ProduceRequest) -> Result:
    partitions = context.broker.partitions
    if not partitions.is_changing:
        return _handle(context, request)
    named, opened = partial(_named, context, request), partial(_handle, context, request)
    result: Result = with_open_logs(partitions, context.session, named, opened)
    return result


def _named(context: BrokerRequestContext, request: ProduceRequest) -> Iterator[Key]:
    by_id = context.api_version >= TOPIC_ID_MIN_VERSION
    return (
        (topic.topic_id if by_id else topic.name, data.index)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _handle(context: BrokerRequestContext, request: ProduceRequest) -> Result:
    transactional = any(is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data)
    if transactional and not _may_transact(context, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = request.topic_data
    if len(topics) > 1 or (topics and len(topics[0].partition_data) > 1):
        for _ in keep_last_batches(request):
            pass
    produce = _Produce(context, request.acks, request.timeout_ms, ProduceResponse(), [])
    for topic in request.topic_data:
        _check_topic(produce, topic)
    if request.acks not in VALID_ACKS:
        for entry in produce.entries:
            _refuse(produce, entry.result, entry.topic, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
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
        results = [_new_result(data.index) for data in topic.partition_data]
        response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
        for result in results:
            _refuse(produce, result, topic.name, Refusal(error))
    return _finish(produce)


# ---- stage one ------------------------------------------------------------------------------------------------------


def _may_transact(context: BrokerRequestContext, transactional_id: str | None) -> bool:
    return transactional_id is not None and context.allowed(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _new_result(index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, 0, UNKNOWN_OFFSET, -1, UNKNOWN_OFFSET, [], None, NO_LEADER_HINT)


def _check_topic(produce: _Produce, topic: TopicProduceData) -> None:
    """Add a result for each partition of `topic` to the response, and an entry for each batch that may be appended."""
    context = produce.context
    partitions = context.broker.partitions
    by_id = context.api_version >= TOPIC_ID_MIN_VERSION
    name = topic.name
    if by_id:
        image = context.node.metadata.image.topic_by_id(topic.topic_id)
        name = image.name if image is not None else ""
    topic_response = TopicProduceResponse(topic.name, topic.topic_id, [])
    produce.response.responses.append(topic_response)
    allowed = not name or context.allowed(AclOperation.WRITE, ResourceType.TOPIC, name)
    internal = is_internal(name)
    for data in topic.partition_data:
        result = _new_result(data.index)
        topic_response.partition_responses.append(result)
        try:
            if not allowed:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if by_id:
                partition = partitions.find_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.find(name, data.index)
            records = single_batch(data.records, context.api_version)
            if internal and context.client_id != ADMIN_CLIENT_ID:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
            produce.entries.append(_Entry(name, partition, records, result, internal))
        except Refusal as refusal:
            _refuse(produce, result, name, refusal)


def _verify(produce: _Produce, transactional_id: str | None) -> Future[list[Outcome]] | None:
    """Start the verification of the transactional entries.

    Set the outcomes of the entries, or return a future of them if the coordinator has to respond first.
    """
    entries = _transactional(produce)
    if not entries:
        return None
    batches = [TransactionalBatch(entry.partition, *producer_of(entry.records)) for entry in entries]
    terms = produce_terms(produce.context.api_version)
    outcomes = produce.context.broker.verifier.start(transactional_id, terms, batches)
    if isinstance(outcomes, Future):
        return outcomes
    _set_outcomes(entries, outcomes)
    return None


def _transactional(produce: _Produce) -> list[_Entry]:
    return [entry for entry in produce.entries if not entry.internal and is_transactional(entry.records)]


def _set_outcomes(entries: Sequence[_Entry], outcomes: Sequence[Outcome]) -> None:
    for entry, outcome in zip(entries, outcomes, strict=True):
        entry.outcome = outcome


def _append_verified(produce: _Produce, outcomes: Sequence[Outcome]) -> Any:
    _set_outcomes(_transactional(produce), outcomes)
    return _append(produce)


def _append(produce: _Produce) -> Result:
    """Append the batches in the order of the request. A check of more than one slice suspends the connection."""
    try:
        if _append_entries(produce):
            return _acknowledge(produce)
    except RecordCheckPending as pending:
        return Ordered(_append_later(produce, pending))
    return Ordered(_append_later(produce, None))


async def _append_later(produce: _Produce, pending: RecordCheckPending | None) -> Any:
    """Append the remaining entries in the order of the request. `pending` is the check of the next one, if it began."""
    context = produce.context
    jobs = context.broker.record_jobs
    done = False
    try:
        while not done:
            if pending is None:
                await context.session.next_turn()
            else:
                entry, check, pending = produce.entries[produce.appended], pending, None
                try:
                    checked = await jobs.complete_check(check, entry.partition.log.disk, context.session)
                except Refusal as refusal:
                    _append_refused(produce, entry, refusal)
                else:
                    _append_entry(produce, entry, checked)
                produce.appended += 1
            try:
                done = _append_entries(produce)
            except RecordCheckPending as next_one:
                pending = next_one
    except CancelledError:
        _acknowledge(produce)  # the time-out removes the waits of earlier entries
        raise
    return _acknowledge(produce)


def _append_entries(produce: _Produce) -> bool:
    """Append at most ENTRIES_PER_TURN entries, or one of an internal topic. Return True if no entry remains."""
    entries = produce.entries
    end = min(len(entries), produce.appended + ENTRIES_PER_TURN)
    while produce.appended < end:
        entry = entries[produce.appended]
        _append_entry(produce, entry)
        produce.appended += 1
        if entry.internal:
            break
    return produce.appended == len(entries)


def _append_entry(produce: _Produce, entry: _Entry, checked: CheckedBatch | None = None) -> None:
    """Append the batch of one entry, and set its result. Raise RecordCheckPending if its check needs more slices."""
    acks, result, partition, outcome = produce.acks, entry.result, entry.partition, entry.outcome
    try:
        if isinstance(outcome, Refusal):
            result.error_message = outcome.message
            raise outcome
        if entry.internal and partition.leads:
            _check_internal(produce, entry)
        info = partition.append(
            entry.records,
            origin=Origin.CLIENT,
            now_ms=produce.context.now_ms,
            guard=outcome,
            acks=acks,
            work=produce.work,
            checked=checked,
            client=client_of(produce.context.session.client_host, produce.context.client_id),
        )
    except Refusal as refusal:
        _append_refused(produce, entry, refusal)
        return
    result.base_offset = info.first_offset
    result.log_append_time_ms = info.log_append_time
    result.log_start_offset = info.log_start_offset
    end = info.last_offset + 1
    reached = partition.log.high_watermark if acks == ACKS_ALL else partition.watermarks.acknowledged_offset
    if acks != ACKS_NONE and (reached < end or not partition.leads):
        _await_acknowledgment(produce, entry, end)
    elif acks == ACKS_ALL and not partition.maximal_isr_suffices:
        _set_error(produce, result, entry.topic, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def _check_internal(produce: _Produce, entry: _Entry) -> None:
    topic = produce.context.node.metadata.image.topic(entry.topic)
    check_client_append(entry.topic, entry.result.index, 0 if topic is None else len(topic.partitions), entry.records)


def _append_refused(produce: _Produce, entry: _Entry, refusal: Refusal) -> None:
    if not isinstance(entry.outcome, Refusal) and refusal.error not in WITHOUT_LOG_START:
        entry.result.log_start_offset = entry.partition.log.log_start_offset
    _refuse(produce, entry.result, entry.topic, refusal)


# ---- stage two ------------------------------------------------------------------------------------------------------


def _await_acknowledgment(produce: _Produce, entry: _Entry, end: int) -> None:
    """Let the response wait until all offsets below `end` are acknowledged."""
    wait = produce.commits
    if wait is None:
        wait = produce.commits = CommitWait(produce.response)
    if produce.acks == ACKS_ALL:
        entry.partition.await_commit(wait, end, _settler(produce, entry))
    else:
        entry.partition.await_acknowledged(wait, end, _settler(produce, entry))


def _acknowledge(produce: _Produce) -> Response | Awaitable[Response]:
    return _finish(produce) if produce.commits is None else produce.commits.start(produce.timeout_ms)


def _settler(produce: _Produce, entry: _Entry) -> CommitCallback:
    def settle(error: ErrorCode) -> None:
        partition = entry.partition
        if error is ErrorCode.NONE and produce.acks == ACKS_ALL and not partition.maximal_isr_suffices:
            _set_error(produce, entry.result, entry.topic, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        elif error is not ErrorCode.NONE:
            _set_error(produce, entry.result, entry.topic, error)

    return settle


# ---- results --------------------------------------------------------------------------------------------------------


def _refuse(produce: _Produce, result: PartitionProduceResponse, topic: str, refusal: Refusal) -> None:
    result.base_offset = UNKNOWN_OFFSET
    if refusal.error in ERRORS_WITH_MESSAGE:
        result.error_message = refusal.message
    if isinstance(refusal, RecordsRefused):
        context = produce.context
        errors = refusal.record_errors[: RECORD_ERRORS_MAX - context.record_errors]
        context.record_errors += len(errors)
        result.record_errors = [BatchIndexAndErrorMessage(index, text) for index, text in errors]
    _set_error(produce, result, topic, refusal.error)


def _set_error(produce: _Produce, result: PartitionProduceResponse, topic: str, error: ErrorCode) -> None:
    context = produce.context
    result.error_code = wire_error(context.api_key, context.api_version, error)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= LEADER_HINT_MIN_VERSION:
        _add_hint(produce, result, topic)


def _add_hint(produce: _Produce, result: PartitionProduceResponse, topic: str) -> None:
    context = produce.context
    hint = leader_hint(context.node.metadata.image, context.session.listener.name, topic, result.index)
    if hint is None:
        return
    result.current_leader = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
    endpoints = produce.response.node_endpoints
    if hint.endpoint is not None and all(known.node_id != hint.leader_id for known in endpoints):
        endpoints.append(NodeEndpoint(hint.leader_id, hint.endpoint.host, hint.endpoint.port, hint.rack))


def _finish(produce: _Produce) -> ProduceResponse | None:
    if produce.acks != ACKS_NONE:
        return produce.response
    errors = [
        f"{topic.name or topic.topic_id}-{result.index}: {ErrorCode(result.error_code).name}"
        for topic in produce.response.responses
        for result in topic.partition_responses
        if result.error_code
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
    splitting=split_by(("topic_data", "partition_data"), ("responses", "partition_responses")),
    combine=keep_last_batches,
    acl="WRITE on each topic; WRITE on the transactional id for transactional batches",
)
