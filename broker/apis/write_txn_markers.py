"""WriteTxnMarkers: v1-2 (v0 went with Kafka 4.0).

Behavior:
- Sent by a transaction coordinator, or by an administrator who ends a hanging transaction behind the coordinator's back
  (KIP-664). Every marker goes to each of its partitions; one answer when all are committed or have failed.
- Served on listeners for brokers; where none is set apart, every listener is one, and an administrator reaches it.
- A marker without a transaction to end is written too: a coordinator that has lost the answer sends it again.

Version notes:
- v1 flexible; v2 the transaction version, by which the epoch is judged (KIP-1228).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.broker.requests.listener import BROKER
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


def handle(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    may_write = context.allowed_on_cluster(AclOperation.ALTER) or context.allowed_on_cluster(
        AclOperation.CLUSTER_ACTION
    )
    if not may_write:
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    written = context.broker.markers.write([_marker(marker) for marker in request.markers])
    if written.done():
        return _response(context, request, written.result())
    return when_done(lambda: _response(context, request, written.result()), written)


def refuse(
    context: BrokerRequestContext, request: WriteTxnMarkersRequest, error: ErrorCode, message: str | None
) -> WriteTxnMarkersResponse:
    results: list[dict[TopicPartition, ErrorCode]] = [
        dict.fromkeys(_marker(marker).partitions, error) for marker in request.markers
    ]
    return _response(context, request, results)


def _marker(asked: WritableTxnMarker) -> Marker:
    partitions = tuple(TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes)
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        partitions,
        asked.transaction_version,
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
    listeners=(BROKER,),
    acl="ALTER or CLUSTER_ACTION on the cluster",
)
