"""The transaction coordinator's way to the leaders of the partitions it ends transactions on.

The coordinator groups its markers by leader and has one request in flight per broker; here the request finds its way.
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


class MarkerSender:
    """`odradek.coordinator.txn.ports.MarkerSender`: what this broker leads is written on the spot, the rest goes out."""

    def __init__(self, node_id: int, local: MarkerWriter, remote: "RemoteMarkerSender") -> None:
        self._node_id = node_id
        self._local = local
        self._remote = remote

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Future[MarkerResults]:
        if broker_id == self._node_id:
            return self._local.write(markers)
        return self._remote.write_markers(broker_id, markers)


class RemoteMarkerSender:
    """WriteTxnMarkers to other brokers."""

    def __init__(self, peers: Peers, timeout_ms: int) -> None:
        """`timeout_ms` is how long the answer of a broker is waited for, whose connection stands."""
        self._peers = peers
        self._timeout_ms = timeout_ms

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """As `odradek.coordinator.txn.ports.MarkerSender`."""
        results: Future[MarkerResults] = get_running_loop().create_future()
        answer = self._peers.request(
            broker_id, Channel.MARKERS, _request(markers), WRITE_TXN_MARKERS_VERSION, timeout_ms=self._timeout_ms
        )
        answer.add_done_callback(partial(_answered, broker_id, markers, results))
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


def _answered(broker_id: int, markers: Sequence[Marker], results: Future[MarkerResults], answer: "Future[Any]") -> None:
    if results.done():
        return
    if answer.cancelled():
        results.cancel()
    elif (failure := answer.exception()) is not None:
        results.set_exception(failure)
    else:
        told = _told(answer.result())
        if [producer_id for producer_id, _ in told] == [marker.producer_id for marker in markers]:
            results.set_result([outcome for _, outcome in told])
        else:
            results.set_exception(ConnectionError(f"broker {broker_id} answers markers that it was not asked for"))


def _told(response: WriteTxnMarkersResponse) -> list[tuple[int, dict[TopicPartition, ErrorCode]]]:
    """(producer id, outcome per partition) of each marker."""
    return [
        (
            marker.producer_id,
            {
                TopicPartition(topic.name, answer.partition_index): known_error(answer.error_code)
                for topic in marker.topics
                for answer in topic.partitions
            },
        )
        for marker in response.markers
    ]
