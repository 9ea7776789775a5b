"""WriteTxnMarkers: write the markers that end transactions to partitions (KIP-98).

Behavior:
* Transaction coordinators send it. An operator sends it to end a hanging transaction without its coordinator (KIP-664,
  `kafka-transactions abort`).
* The response is sent when each marker is committed in each of its partitions, or has failed there.
* A marker is also written if the partition has no open transaction of the producer: a coordinator that did not receive
  the response retries.
* A request with more than MARKERS_PER_PART markers and partitions is handled in parts, and other connections are served
  in between. All parts are appended before the first one is awaited.
* A marker whose producer epoch is below the one of the partition is not written, and counts as written, if no
  transaction of the producer is open there. Kafka responds with INVALID_PRODUCER_EPOCH.
* A listener for clients alone serves it for ABORT of a hanging transaction: the transaction is open in the partition,
  its producer epoch and coordinator epoch are those in the request, and no coordinator knows it.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without ALTER or CLUSTER_ACTION. Per partition: UNKNOWN_TOPIC_OR_PARTITION,
  NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
  UNKNOWN_LEADER_EPOCH if the coordinator epoch is above those of all transaction coordinators that this broker knows.
* On a listener for clients alone: CLUSTER_AUTHORIZATION_FAILED for COMMIT, INVALID_TXN_STATE if the transaction is not
  hanging, COORDINATOR_NOT_AVAILABLE if a coordinator does not respond or does not list a partition that it leads,
  INVALID_REQUEST for more than 100 partitions.

Version notes:
* v0 was removed in Kafka 4.0. v1 is flexible. v2 has the transaction version, which decides how the producer epoch is
  checked (KIP-1228).
"""

from asyncio import Future, get_running_loop, sleep
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.marker_writer import MARKERS_PER_TURN
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.broker.requests.joining import JoinedResponse
from odradek.broker.requests.listener import BROKER, CLIENT, SERVES_NO_BROKERS
from odradek.broker.requests.slices import large_work, turn
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MARKERS_PER_PART: Final = MARKERS_PER_TURN
"""Maximum markers and partitions that are appended between two turns of the event loop. A marker takes about 25 µs."""
PARTS: Final = Splitting(
    ("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions"), MARKERS_PER_PART
)
_Written = tuple[WriteTxnMarkersRequest, int, Future[MarkerResults]]
"""Part of a request, the number of its first outer elements that the part before it shares, and its results."""


def handle(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse] | Ordered[WriteTxnMarkersResponse]:
    is_broker = BROKER in context.session.roles
    may_write = _may_write(context, request, is_broker=is_broker)
    if PARTS.is_large(request):
        context.encode_in_slices = True
        if not may_write:
            return Ordered(_refuse_parts(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if not is_broker:
            return Ordered(_refuse_parts(context, request, ErrorCode.INVALID_REQUEST))
        return Ordered(_write_parts(context, request))
    if not may_write:
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    markers = [_marker(marker) for marker in request.markers]
    if not is_broker:
        return _abort_hanging(context, request, markers)
    written = context.broker.markers.write(markers)
    if written.done():
        return _response(context, request, written.result())
    return when_done(lambda: _response(context, request, written.result()), written)


def _may_write(context: BrokerRequestContext, request: WriteTxnMarkersRequest, *, is_broker: bool) -> bool:
    """Return True if the client may write the markers. The audit log has those of operators."""
    about = (
        f"{'COMMIT' if marker.transaction_result else 'ABORT'} of producer {marker.producer_id}"
        for marker in request.markers
    )
    if not context.permits_on_cluster(AclOperation.CLUSTER_ACTION):
        return context.allowed_on_cluster(AclOperation.ALTER, about)
    return is_broker or context.allowed_change_of_cluster(AclOperation.CLUSTER_ACTION, about)


async def _write_parts(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest
) -> Awaitable[WriteTxnMarkersResponse | None] | None:
    """Append the markers in parts. If the connection closes, drop the parts that remain: the coordinator retries."""
    written: list[_Written] = []
    for part, shared in PARTS.parts(request):
        if context.session.closed:
            return None
        markers = [_marker(marker) for marker in part.markers]
        written.append((part, shared, context.broker.markers.write(markers)))
        await sleep(0)
    return _joined(context, written)


async def _refuse_parts(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest, error: ErrorCode
) -> Awaitable[WriteTxnMarkersResponse | None] | None:
    return _joined(context, _refused_parts(request, error))


def _refused_parts(request: WriteTxnMarkersRequest, error: ErrorCode) -> Iterator[_Written]:
    for part, shared in PARTS.parts(request):
        refused: Future[MarkerResults] = get_running_loop().create_future()
        refused.set_result(_results(part, error))
        yield part, shared, refused


async def _joined(context: BrokerRequestContext, parts: Iterable[_Written]) -> WriteTxnMarkersResponse | None:
    joined = JoinedResponse(PARTS, WriteTxnMarkersResponse)
    with large_work(context) as work:
        for part, shared, results in parts:
            await joined.add(_response(context, part, await results), shared, work)
            await turn(work)
            if context.session.closed:
                return None
    response: WriteTxnMarkersResponse = joined.response
    return response


async def _abort_hanging(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest, markers: Sequence[Marker]
) -> WriteTxnMarkersResponse:
    if any(marker.commit for marker in markers):
        context.note_denied_node("COMMIT of a transaction", SERVES_NO_BROKERS)
    return _response(context, request, await context.broker.hanging.abort(markers))


def refuse(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest, error: ErrorCode, message: str | None
) -> WriteTxnMarkersResponse:
    return _response(context, request, _results(request, error))


def _results(request: WriteTxnMarkersRequest, error: ErrorCode) -> MarkerResults:
    return [dict.fromkeys(_marker(marker).partitions, error) for marker in request.markers]


def _marker(marker: WritableTxnMarker) -> Marker:
    partitions = tuple(
        TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
    )
    return Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        partitions,
        marker.transaction_version,
    )


def _response(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest, results: MarkerResults
) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for marker, outcome in zip(request.markers, results, strict=True):
        topics = [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(
                        index,
                        wire_error(context.api_key, context.api_version, outcome[TopicPartition(topic.name, index)]),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        response.markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return response


API: Final = Api(
    key=WriteTxnMarkersRequest.API_KEY,
    min_version=1,
    max_version=2,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, BROKER),
    acl="ALTER or CLUSTER_ACTION on the cluster",
)
