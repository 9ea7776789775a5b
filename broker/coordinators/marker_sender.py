"""Send transaction markers from the transaction coordinator to the leaders of the partitions.

The coordinator groups its markers by leader and has at most one request in flight per broker.
"""

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from odradek.broker.coordinators.marker_writer import MarkerWriter
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.requests.error_map import known_error
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

WRITE_TXN_MARKERS_VERSION: Final = 2
"""Version of the WriteTxnMarkers requests between brokers: the first with `transaction_version`."""


class MarkerSender:
    """Append markers directly if this broker is the leader, otherwise send them (`MarkerSender` of the core)."""

    def __init__(self, node_id: int, local: MarkerWriter, remote: "RemoteMarkerSender") -> None:
        self._node_id = node_id
        self._local = local
        self._remote = remote

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """Write the markers on broker `broker_id`. The future yields the error of each marker in each partition."""
        if broker_id == self._node_id:
            return self._local.write(markers)
        return self._remote.write_markers(broker_id, markers)


class RemoteMarkerSender:
    """Send WriteTxnMarkers to other brokers."""

    def __init__(self, peers: Peers, timeout_ms: int) -> None:
        """`timeout_ms` bounds the wait for a response."""
        self._peers = peers
        self._timeout_ms = timeout_ms

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """Send the markers. The future yields the error of each marker in each partition, or an OSError."""
        results: Future[MarkerResults] = get_running_loop().create_future()
        response = self._peers.request(
            broker_id, Channel.MARKERS, _request(markers), WRITE_TXN_MARKERS_VERSION, timeout_ms=self._timeout_ms
        )
        response.add_done_callback(partial(_complete, broker_id, markers, results))
        return results


def _request(markers: Sequence[Marker]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                _topics(marker.partitions),
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            for marker in markers
        ]
    )


def _topics(partitions: Sequence[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()]


def _complete(
    broker_id: int, markers: Sequence[Marker], results: Future[MarkerResults], response: "Future[Any]"
) -> None:
    if results.done():
        return
    if response.cancelled():
        results.cancel()
    elif (failure := response.exception()) is not None:
        results.set_exception(failure)
    else:
        received = _results(response.result())
        if [producer_id for producer_id, _ in received] == [marker.producer_id for marker in markers]:
            results.set_result([errors for _, errors in received])
        else:
            results.set_exception(
                ConnectionError(f"broker {broker_id} returned results of other markers than it received")
            )


def _results(response: WriteTxnMarkersResponse) -> list[tuple[int, dict[TopicPartition, ErrorCode]]]:
    """Return producer id and errors by partition of each marker of a response."""
    return [
        (
            marker.producer_id,
            {
                TopicPartition(topic.name, partition.partition_index): known_error(partition.error_code)
                for topic in marker.topics
                for partition in topic.partitions
            },
        )
        for marker in response.markers
    ]
