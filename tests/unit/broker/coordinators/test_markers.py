"""WriteTxnMarkers: the handler, the marker writer, and the senders of markers to this broker and to other brokers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import write_txn_markers
from odradek.broker.coordinators import marker_writer
from odradek.broker.coordinators.marker_sender import MarkerSender, RemoteMarkerSender
from odradek.broker.quorum.peers import Channel
from odradek.cluster.authorizer import AclOperation
from odradek.coordinator.txn.ports import Marker, TopicPartition
from odradek.protocol.batch import end_txn_marker
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.runtime import shard
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import COORDINATOR_EPOCH_MAX, EIO, NODE, NOW_MS, Rig, batch, outcome

E = ErrorCode


def open_transaction(rig: Rig, producer_id: int, index: int = 0, epoch: int = 0, sequence: int = 0) -> None:
    partition = rig.partition("t", index)
    guard = partition.log.producers.start_verification(producer_id, epoch, sequence, supports_epoch_bump=False)
    data = batch(producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
    partition.append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)


def marker(producer_id: int, *indexes: int, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0) -> Marker:
    partitions = tuple(TopicPartition("t", index) for index in indexes)
    return Marker(producer_id, epoch, coordinator_epoch, True, partitions, version)


async def test_write_txn_markers_returns_one_error_per_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 3)
    rig.partition("t", 2).take_offline(OSError(EIO, "injected"))
    open_transaction(rig, 7, 0)
    open_transaction(rig, 7, 1)
    open_transaction(rig, 8, 1, epoch=5)
    markers = [
        WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0, 1, 2, 9])], 3),
        WritableTxnMarker(8, 4, False, [WritableTxnMarkerTopic("t", [1])], 3),
    ]
    response = write_txn_markers.handle(rig.context(27, 1), WriteTxnMarkersRequest(markers))
    assert isinstance(response, WriteTxnMarkersResponse)
    errors = [
        (result.producer_id, row.partition_index, ErrorCode(row.error_code))
        for result in response.markers
        for topic in result.topics
        for row in topic.partitions
    ]
    assert errors == [
        (7, 0, E.NONE),
        (7, 1, E.NONE),
        (7, 2, E.UNKNOWN_TOPIC_OR_PARTITION),
        (7, 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        (8, 1, E.INVALID_PRODUCER_EPOCH),
    ]
    assert [rig.partition("t", index).log.last_stable_offset for index in (0, 1)] == [2, 1]


async def test_older_coordinator_epoch_is_fenced_and_the_same_epoch_writes_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    writer = rig.services.markers
    open_transaction(rig, 7)
    key = TopicPartition("t", 0)
    for coordinator_epoch, error in ((3, E.NONE), (3, E.NONE), (2, E.TRANSACTION_COORDINATOR_FENCED)):
        assert writer.write([marker(7, 0, coordinator_epoch=coordinator_epoch)]).result() == [{key: error}]
    assert rig.partition().log.log_end_offset == 3


async def test_marker_with_coordinator_epoch_above_all_coordinators_is_refused_and_fences_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    writer = rig.services.markers
    open_transaction(rig, 7)
    key = TopicPartition("t", 0)
    for epoch in (COORDINATOR_EPOCH_MAX + 1, 2**31 - 1):
        forged = [marker(7, 0, coordinator_epoch=epoch)]
        assert writer.write(forged).result() == [{key: E.UNKNOWN_LEADER_EPOCH}]
    assert rig.partition().log.last_stable_offset == 0
    assert writer.write([marker(7, 0, coordinator_epoch=COORDINATOR_EPOCH_MAX)]).result() == [{key: E.NONE}]
    assert rig.partition().log.last_stable_offset == 2


async def test_marker_with_the_coordinator_epoch_of_the_partition_is_written(tmp_path: Path) -> None:
    """An earlier version accepted any epoch. An operator ends such a transaction with the epoch of the partition."""
    rig = Rig(tmp_path)
    rig.topic("t")
    epoch = 2**31 - 1
    forged = end_txn_marker(producer_id=7, producer_epoch=0, coordinator_epoch=epoch, commit=False, timestamp=NOW_MS)
    rig.partition().append(forged, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    open_transaction(rig, 7)
    written = rig.services.markers.write([marker(7, 0, coordinator_epoch=epoch)])
    assert written.result() == [{TopicPartition("t", 0): E.NONE}]


async def test_marker_below_a_forged_epoch_counts_as_written_if_no_transaction_is_open(tmp_path: Path) -> None:
    """A refused marker would keep the transaction prepared, and its other partitions unstable, permanently."""
    rig = Rig(tmp_path)
    rig.topic("t")
    partition = rig.partition()
    partition.append(batch(producer_id=7, epoch=32_767, sequence=0), origin=Origin.CLIENT, now_ms=NOW_MS)
    end = partition.log.log_end_offset
    written = rig.services.markers.write([marker(7, 0, epoch=3, coordinator_epoch=2, version=2)])
    assert written.result() == [{TopicPartition("t", 0): E.NONE}]
    assert (partition.log.log_end_offset, partition.log.producers.entries[7].epoch) == (end, 32_767)


async def test_marker_write_completes_when_all_markers_are_committed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t", 2)
    written = rig.services.markers.write([marker(7, 0, 1)])
    rig.commits[1].advance()
    assert not written.done()
    rig.commits[0].advance()
    assert written.result() == [{TopicPartition("t", 0): E.NONE, TopicPartition("t", 1): E.NONE}]


async def test_marker_write_fails_on_timeout_and_on_loss_of_the_leader(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "request.timeout.ms=1", manual_commits=True)
    rig.topic("t", 2)
    late = rig.services.markers.write([marker(7, 0)])
    lost = rig.services.markers.write([marker(8, 1)])
    rig.partition("t", 1).follow(9)
    assert lost.result() == [{TopicPartition("t", 1): E.NOT_LEADER_OR_FOLLOWER}]
    assert await late == [{TopicPartition("t", 0): E.REQUEST_TIMED_OUT}]


async def test_request_without_markers_gets_an_empty_response(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    response = await outcome(write_txn_markers.handle(rig.context(27, 2), WriteTxnMarkersRequest()))
    assert response.markers == []


async def test_write_txn_markers_needs_alter_or_cluster_action_on_the_cluster(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    both = ((AclOperation.ALTER, "kafka-cluster"), (AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0])], 0)])
    for denied, refused in ((both[:1], False), (both[1:], False), (both, True)):
        rig.services.authorizer = broker_context.Deny(*denied)
        if not refused:
            write_txn_markers.handle(rig.context(27, 1), request)
            continue
        with pytest.raises(Refusal) as refusal:
            write_txn_markers.handle(rig.context(27, 1), request)
        assert refusal.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    response = write_txn_markers.refuse(rig.context(27, 1), request, E.CLUSTER_AUTHORIZATION_FAILED, None)
    assert response.markers[0].topics[0].partitions[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED


class Peers:
    """In-memory connections to other brokers. A request completes when the test completes its future."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Channel, Any, int, int]] = []
        self.futures: list[asyncio.Future[Any]] = []

    def request(
        self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int
    ) -> "asyncio.Future[Any]":
        self.requests.append((node_id, channel, request, version, timeout_ms))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


async def serve_last_request(rig: Rig, peers: Any) -> None:
    """Execute the last request at the remote broker, over the wire format.

    The partitions of `rig` are those of that broker.
    """
    _, _, request, version, _ = peers.requests[-1]
    received = decode(WriteTxnMarkersRequest, version, encode(request, version))
    response = await outcome(write_txn_markers.handle(rig.context(27, version), received))
    peers.futures[-1].set_result(decode(WriteTxnMarkersResponse, version, encode(response, version)))


async def test_markers_for_this_broker_are_written_without_a_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    peers: Any = Peers()
    rig.topic("t")
    sender = MarkerSender(NODE, rig.services.markers, RemoteMarkerSender(peers, 5_000))
    assert sender.write_markers(NODE, [marker(7, 0)]).result() == [{TopicPartition("t", 0): E.NONE}]
    assert peers.requests == []


async def test_markers_for_another_broker_are_sent_and_their_results_returned(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    peers: Any = Peers()
    rig.topic("t", 2)
    open_transaction(rig, 7, 0)
    open_transaction(rig, 8, 1, epoch=5)
    sender = MarkerSender(NODE, rig.services.markers, RemoteMarkerSender(peers, 5_000))
    sent = sender.write_markers(2, [marker(7, 0, 9, coordinator_epoch=3), marker(8, 1, epoch=4)])
    assert [(node, channel, version, limit) for node, channel, _, version, limit in peers.requests] == [
        (2, Channel.MARKERS, 2, 5_000)
    ]
    await serve_last_request(rig, peers)
    assert await sent == [
        {TopicPartition("t", 0): E.NONE, TopicPartition("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION},
        {TopicPartition("t", 1): E.INVALID_PRODUCER_EPOCH},
    ]
    assert [rig.partition("t", index).log.last_stable_offset for index in (0, 1)] == [2, 0]


async def test_lost_connection_or_mismatched_response_fails_the_markers_with_connection_error() -> None:
    peers: Any = Peers()
    sender = RemoteMarkerSender(peers, 5_000)
    lost, mismatched = sender.write_markers(2, [marker(7, 0)]), sender.write_markers(2, [marker(7, 0)])
    peers.futures[0].set_exception(ConnectionError("gone"))
    peers.futures[1].set_result(WriteTxnMarkersResponse())
    for future in (lost, mismatched):
        with pytest.raises(ConnectionError):
            await future


async def test_unknown_error_code_from_another_broker_becomes_unknown_server_error() -> None:
    peers: Any = Peers()
    sent = RemoteMarkerSender(peers, 5_000).write_markers(2, [marker(7, 0)])
    topic = WritableTxnMarkerTopicResult("t", [WritableTxnMarkerPartitionResult(0, 9_999)])
    peers.futures[0].set_result(WriteTxnMarkersResponse([WritableTxnMarkerResult(7, [topic])]))
    assert await sent == [{TopicPartition("t", 0): E.UNKNOWN_SERVER_ERROR}]


def rig_with_short_timeout(tmp_path: Path) -> Rig:
    """Make a broker with a request time-out of 1 ms and one partition, whose commits wait for the test."""
    rig = Rig(tmp_path, "request.timeout.ms=1", manual_commits=True)
    rig.topic("t")
    return rig


async def test_marker_after_a_timeout_is_not_written_again_by_the_same_leader(tmp_path: Path) -> None:
    rig = rig_with_short_timeout(tmp_path)
    open_transaction(rig, 7)
    key = TopicPartition("t", 0)
    for _ in range(3):
        assert await rig.services.markers.write([marker(7, 0)]) == [{key: E.REQUEST_TIMED_OUT}]
    assert rig.partition().log.log_end_offset == 2
    assert await rig.services.markers.write([marker(7, 0, coordinator_epoch=1)]) == [{key: E.REQUEST_TIMED_OUT}]
    assert rig.partition().log.log_end_offset == 3  # the marker of a new coordinator epoch is written
    rig.commits[0].advance()
    for coordinator_epoch in (0, 1):
        written = rig.services.markers.write([marker(7, 0, coordinator_epoch=coordinator_epoch)])
        assert written.result() == [{key: E.NONE}]
    assert rig.partition().log.log_end_offset == 3
    assert rig.services.markers._uncommitted == {}
    rig.commits[0].advance(0)
    assert (await rig.services.markers.write([marker(7, 0, coordinator_epoch=1)])) == [{key: E.REQUEST_TIMED_OUT}]
    assert rig.partition().log.log_end_offset == 4  # a repetition after completion is written: its response was lost


async def test_unrepeated_marker_does_not_count_for_the_next_transaction(tmp_path: Path) -> None:
    """An operator's abort times out and is not repeated. A classic producer continues with the same epoch."""
    rig = rig_with_short_timeout(tmp_path)
    log, key = rig.partition().log, TopicPartition("t", 0)
    abort, commit = replace(marker(7, 0), commit=False), marker(7, 0)
    open_transaction(rig, 7)
    assert await rig.services.markers.write([abort]) == [{key: E.REQUEST_TIMED_OUT}]
    rig.commits[0].advance()
    open_transaction(rig, 7, sequence=1)
    for end, ending in ((4, abort), (6, commit)):
        rig.commits[0].advance()
        written = rig.services.markers.write([ending])
        rig.commits[0].advance()
        assert (written.result(), log.log_end_offset, log.last_stable_offset) == ([{key: E.NONE}], end, end)
        open_transaction(rig, 7, sequence=end // 2)
    assert rig.services.markers._uncommitted == {}


async def test_many_markers_of_one_call_are_appended_in_several_turns(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    count = 2 * marker_writer.MARKERS_PER_TURN
    written = rig.services.markers.write([marker(number, 0, 1, 9) for number in range(count)])
    ends = []
    while not written.done():
        ends.append(sum(rig.partition("t", index).log.log_end_offset for index in (0, 1)))
        await asyncio.sleep(0)
    errors = {TopicPartition("t", 0): E.NONE, TopicPartition("t", 1): E.NONE}
    assert written.result() == [errors | {TopicPartition("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION}] * count
    assert [rig.partition("t", index).log.log_end_offset for index in (0, 1)] == [count, count]
    assert ends[0] > 0
    assert max(after - before for before, after in pairwise([0, *ends])) <= marker_writer.MARKERS_PER_TURN


async def test_cancelled_write_appends_no_further_markers_and_an_exception_reaches_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    markers = [marker(number, 0) for number in range(marker_writer.MARKERS_PER_TURN + 1)]
    rig.services.markers.write(markers).cancel()
    await asyncio.sleep(0)
    assert rig.partition().log.log_end_offset == marker_writer.MARKERS_PER_TURN
    broken = rig.services.markers.write(markers)
    monkeypatch.delattr(marker_writer.MarkerWriter, "_append")
    with pytest.raises(AttributeError):
        await broken


async def test_time_out_of_a_marker_takes_bounded_work_while_the_table_of_uncommitted_markers_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = 0

    def counted(*arguments: Any) -> bool:
        nonlocal checked
        checked += 1
        return is_uncommitted(*arguments)

    is_uncommitted = marker_writer._is_uncommitted
    monkeypatch.setattr(marker_writer, "_is_uncommitted", counted)
    monkeypatch.setattr(marker_writer, "UNCOMMITTED_MAX", 50)
    rig = rig_with_short_timeout(tmp_path)
    results = await rig.services.markers.write([marker(number, 0) for number in range(100)])
    assert results == [{TopicPartition("t", 0): E.REQUEST_TIMED_OUT}] * 100
    assert 0 < checked <= 50 * marker_writer.UNCOMMITTED_CHECKED_MAX
    assert len(rig.services.markers._uncommitted) == 50
    rig.commits[0].advance()
    await rig.services.markers.write([marker(number, 0, coordinator_epoch=1) for number in range(25)])
    remembered = [key[2] for key in rig.services.markers._uncommitted if key[4] == 1]
    assert sorted(remembered) == list(range(25))
    assert len(rig.services.markers._uncommitted) <= 50


class CoordinatorState:
    """In-memory coordinator shard. It applies the markers of the partition that contains its state."""

    def __init__(self) -> None:
        self.refuse: E | None = None
        self.marks: list[tuple[int, int, shard.Marker]] = []

    def mark(self, partition: int, marker: shard.Marker, write: Callable[[], int]) -> None:
        if self.refuse is not None:
            raise Refusal(self.refuse)
        self.marks.append((partition, write(), marker))


async def test_marker_in_a_coordinator_topic_is_applied_to_its_shard_once(tmp_path: Path) -> None:
    rig, state = Rig(tmp_path, "request.timeout.ms=1", manual_commits=True), CoordinatorState()
    rig.topic("t", 2)
    rig.services.markers.apply_with("t", state.mark)
    key = TopicPartition("t", 0)
    open_transaction(rig, 7)
    state.refuse = E.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.services.markers.write([marker(7, 0)]).result() == [{key: E.COORDINATOR_LOAD_IN_PROGRESS}]
    assert rig.partition().log.log_end_offset == 1
    state.refuse = None
    assert await rig.services.markers.write([marker(7, 0)]) == [{key: E.REQUEST_TIMED_OUT}]
    assert state.marks == [(0, 1, shard.Marker(7, 0, 0, commit=True))]
    repeated = rig.services.markers.write([marker(7, 0)])  # the log and the state have this marker
    rig.commits[0].advance()
    assert (repeated.result(), len(state.marks)) == ([{key: E.NONE}], 1)


async def test_refused_marker_is_not_applied(tmp_path: Path) -> None:
    rig, state = Rig(tmp_path), CoordinatorState()
    rig.topic("t")
    rig.services.markers.apply_with("t", state.mark)
    open_transaction(rig, 7, epoch=5)
    key = TopicPartition("t", 0)
    assert rig.services.markers.write([marker(7, 0, epoch=4)]).result() == [{key: E.INVALID_PRODUCER_EPOCH}]
    rig.partition().follow(9)
    assert rig.services.markers.write([marker(7, 0, epoch=5)]).result() == [{key: E.NOT_LEADER_OR_FOLLOWER}]
    assert state.marks == []


async def test_marker_that_a_shard_refuses_gets_a_retriable_error(tmp_path: Path) -> None:
    rig, state = Rig(tmp_path), CoordinatorState()
    rig.topic("t")
    rig.services.markers.apply_with("t", state.mark)
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [0])], 0)])
    for error in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE):
        state.refuse = error
        response = await outcome(write_txn_markers.handle(rig.context(27, 1), request))
        assert response.markers[0].topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER
