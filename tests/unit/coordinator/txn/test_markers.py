"""Marker plan: requests per leader, retries, and responses to earlier completions."""

from __future__ import annotations

import pytest

from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.markers import (
    COMPLETIONS_PER_TURN_MAX,
    MARKERS_PER_REQUEST_MAX,
    MARKERS_RESOLVED_MAX,
    CompletionResult,
    MarkerPlan,
    MarkerRequest,
)
from odradek.coordinator.txn.ports import Marker, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import NO_LEADER
from tests.support.txn_rig import T0, T1, U0

NONE = ErrorCode.NONE
LEADERS: dict[TopicPartition, int | None] = {T0: 1, T1: 2, U0: 1}


def send(
    name: str = "a", partitions: tuple[TopicPartition, ...] = (T0, T1, U0), coordinator_epoch: int = 3
) -> SendMarkers:
    return SendMarkers(name, Marker(10, 4, coordinator_epoch, True, partitions, 2))


class Rig:
    """A marker plan with leaders that the test sets."""

    def __init__(self) -> None:
        self.plan = MarkerPlan()
        self.leaders = dict(LEADERS)

    def requests(self) -> list[MarkerRequest]:
        self.plan.resolve(lambda topic, partition: self.leaders.get(TopicPartition(topic, partition)))
        return self.plan.next_requests()

    def respond(self, request: MarkerRequest, errors: dict[TopicPartition, ErrorCode] | None = None) -> None:
        results = [
            {partition: (errors or {}).get(partition, NONE) for partition in marker.partitions}
            for marker in request.markers
        ]
        self.plan.on_response(request, results)

    def finished(self) -> list[tuple[str, CompletionResult]]:
        return [(entry.completion.transactional_id, entry.result) for entry in self.plan.take_finished()]


def test_each_leader_gets_one_request_and_completion_follows_all_responses() -> None:
    rig = Rig()
    rig.plan.start(0, send())
    first, second = rig.requests()
    assert [(request.broker_id, request.markers[0].partitions) for request in (first, second)] == [
        (1, (T0, U0)),
        (2, (T1,)),
    ]
    rig.respond(first)
    assert rig.finished() == []
    assert list(rig.plan.outstanding("a") or {}) == [T1]
    rig.respond(second)
    assert rig.finished() == [("a", CompletionResult.DONE)]
    assert rig.finished() == []
    assert rig.plan.outstanding("a") is None


def test_at_most_one_request_is_in_flight_per_broker() -> None:
    rig = Rig()
    rig.plan.start(0, send("a", (T0,)))
    (request,) = rig.requests()
    rig.plan.start(0, send("b", (T0,)))
    rig.plan.start(1, send("c", (U0,)))
    assert rig.requests() == []
    rig.respond(request)
    (following,) = rig.requests()
    assert [completion.transactional_id for completion in following.completions] == ["b", "c"]


def test_request_has_a_bounded_number_of_transactions() -> None:
    rig = Rig()
    for number in range(MARKERS_PER_REQUEST_MAX + 1):
        rig.plan.start(0, send(str(number), (T0,)))
    (request,) = rig.requests()
    assert len(request.markers) == MARKERS_PER_REQUEST_MAX
    rig.respond(request)
    assert len(rig.requests()[0].markers) == 1


def test_transaction_with_many_partitions_is_divided_among_requests() -> None:
    rig = Rig()
    partitions = tuple(TopicPartition("t", number) for number in range(2 * MARKERS_PER_REQUEST_MAX + 1))
    rig.leaders = dict.fromkeys(partitions, 1)
    rig.plan.start(0, send("a", partitions))
    sent: list[TopicPartition] = []
    while requests := rig.requests():
        assert rig.finished() == []
        (marker,) = requests[0].markers
        assert len(marker.partitions) <= MARKERS_PER_REQUEST_MAX
        sent += marker.partitions
        rig.respond(requests[0])
    assert tuple(sent) == partitions
    assert rig.finished() == [("a", CompletionResult.DONE)]


def test_one_call_resolves_a_bounded_number_of_partitions() -> None:
    rig = Rig()
    resolved = 0

    def leader_of(_topic: str, _partition: int) -> int:
        nonlocal resolved
        resolved += 1
        return NO_LEADER

    for number in range(MARKERS_RESOLVED_MAX):
        rig.plan.start(0, send(str(number)))
    for calls in range(1, 4):
        assert rig.plan.has_work
        rig.plan.resolve(leader_of)
        assert resolved == calls * MARKERS_RESOLVED_MAX
    assert not rig.plan.has_work


def test_broker_with_a_long_queue_does_not_delay_the_requests_to_another_broker() -> None:
    rig = Rig()
    for number in range(2 * MARKERS_PER_REQUEST_MAX - 1):
        rig.plan.start(0, send(str(number), (T0,)))
    rig.plan.start(0, send("last", (T1,)))
    (first,) = rig.requests()
    rig.respond(first)
    assert first.broker_id == 1
    assert [request.broker_id for request in rig.requests()] == [2, 1]


def test_markers_that_fail_during_a_retry_wait_for_the_next_one() -> None:
    rig = Rig()
    count = MARKERS_RESOLVED_MAX + 1
    for number in range(count):
        rig.plan.start(0, send(str(number), (T0,)))
    for _ in range(2):
        sent = 0
        while rig.plan.has_work:
            assert sent < count
            for request in rig.requests():
                sent += len(request.markers)
                rig.respond(request, {T0: ErrorCode.NOT_ENOUGH_REPLICAS})
            if not rig.plan.has_retries:
                rig.plan.retry_due()  # without effect: markers of the last retry are not resolved yet
        assert sent == count
        assert rig.plan.has_retries
        rig.plan.retry_due()


def test_one_call_returns_a_bounded_number_of_finished_completions_and_none_of_a_dropped_shard() -> None:
    rig = Rig()
    for number in range(COMPLETIONS_PER_TURN_MAX + 1):
        rig.plan.start(number % 2, send(str(number), ()))
    assert len(rig.finished()) == COMPLETIONS_PER_TURN_MAX
    rig.plan.drop(0)
    assert rig.finished() == []
    assert not rig.plan.has_work


def test_transaction_without_partitions_completes_immediately() -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=()))
    assert rig.requests() == []
    assert rig.finished() == [("a", CompletionResult.DONE)]


def test_deleted_partitions_count_as_done() -> None:
    rig = Rig()
    rig.leaders[T0] = rig.leaders[U0] = None
    rig.plan.start(0, send())
    (request,) = rig.requests()
    assert request.markers[0].partitions == (T1,)
    rig.respond(request)
    assert rig.finished() == [("a", CompletionResult.DONE)]
    rig.leaders[T1] = None
    rig.plan.start(0, send("b"))
    assert rig.requests() == []
    assert rig.finished() == [("b", CompletionResult.DONE)]


def test_partition_without_leader_waits_for_a_metadata_change() -> None:
    rig = Rig()
    rig.leaders[T0] = NO_LEADER
    rig.plan.start(0, send(partitions=(T0,)))
    assert rig.requests() == []
    assert not rig.plan.has_retries
    rig.plan.retry_due()
    rig.leaders[T0] = 5
    assert rig.requests() == []
    rig.plan.leaders_changed({U0: None})
    assert rig.requests() == []
    rig.plan.leaders_changed({T0: None})
    assert rig.requests()[0].broker_id == 5


def test_marker_in_flight_is_sent_to_the_new_leader_of_a_moved_partition() -> None:
    """1. Broker 1 receives the markers of T0 and U0, and is paused.
    2. The controller moves T0 to broker 2. The marker of T0 is sent to broker 2 immediately.
    3. Broker 1 continues and responds with a fatal error for T0. The error is ignored.
    4. The success that broker 1 reports for U0 counts.
    """
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0, U0)))
    (old,) = rig.requests()
    rig.leaders[T0] = 2
    rig.plan.leaders_changed({T0: None})
    (new,) = rig.requests()
    assert (new.broker_id, new.markers[0].partitions) == (2, (T0,))
    rig.respond(old, {T0: ErrorCode.INVALID_PRODUCER_EPOCH})
    assert list(rig.plan.outstanding("a") or {}) == [T0]
    rig.respond(new)
    assert rig.finished() == [("a", CompletionResult.DONE)]


def test_lost_connection_sends_again_only_markers_of_unmoved_partitions() -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0, U0)))
    (old,) = rig.requests()
    rig.leaders[T0] = 2
    rig.plan.leaders_changed({T0: None})
    (new,) = rig.requests()
    rig.plan.disconnected(old)
    rig.respond(new)
    rig.plan.retry_due()
    (retry,) = rig.requests()
    assert (retry.broker_id, retry.markers[0].partitions) == (1, (U0,))


def test_queued_markers_follow_the_leader_and_end_with_a_deleted_topic() -> None:
    rig = Rig()
    rig.plan.start(0, send("a", (T0,)))
    (in_flight,) = rig.requests()
    rig.plan.start(0, send("b", (T0,)))  # queued behind the first request
    rig.plan.start(0, send("c", (T1,)))
    (refused,) = rig.requests()
    rig.respond(refused, {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    rig.leaders[T0] = rig.leaders[T1] = 3
    rig.plan.leaders_changed({T0: None, T1: None})
    (moved,) = rig.requests()
    assert [completion.transactional_id for completion in moved.completions] == ["c", "b", "a"]
    rig.leaders[T0] = None
    rig.plan.leaders_changed({T0: None})
    assert rig.requests() == []
    assert sorted(rig.finished()) == [("a", CompletionResult.DONE), ("b", CompletionResult.DONE)]
    rig.respond(in_flight)
    rig.respond(moved)
    assert rig.finished() == [("c", CompletionResult.DONE)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_retriable_errors_are_retried_with_the_current_leader(error: ErrorCode) -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0, U0)))
    (request,) = rig.requests()
    rig.respond(request, {T0: error})
    assert list(rig.plan.outstanding("a") or {}) == [T0]  # the marker of U0 is complete
    assert rig.requests() == []
    rig.leaders[T0] = 2
    rig.plan.retry_due()
    (retry,) = rig.requests()
    assert (retry.broker_id, retry.markers[0].partitions) == (2, (T0,))
    rig.respond(retry)
    assert rig.finished() == [("a", CompletionResult.DONE)]


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_partition_without_support_for_markers_counts_as_done(error: ErrorCode) -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0,)))
    rig.respond(rig.requests()[0], {T0: error})
    assert rig.finished() == [("a", CompletionResult.DONE)]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, CompletionResult.FENCED),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, CompletionResult.FENCED),
        (ErrorCode.CORRUPT_MESSAGE, CompletionResult.FATAL),
        (ErrorCode.MESSAGE_TOO_LARGE, CompletionResult.FATAL),
        (ErrorCode.RECORD_LIST_TOO_LARGE, CompletionResult.FATAL),
        (ErrorCode.INVALID_REQUIRED_ACKS, CompletionResult.FATAL),
        (ErrorCode.INVALID_REQUEST, CompletionResult.FATAL),
    ],
)
def test_fatal_error_ends_the_completion(error: ErrorCode, result: CompletionResult) -> None:
    rig = Rig()
    rig.plan.start(0, send())
    first, second = rig.requests()
    rig.respond(first, {U0: error})
    assert rig.finished() == [("a", result)]
    rig.respond(second)
    assert rig.finished() == []
    assert len(rig.plan) == 0


def test_lost_connection_sends_all_its_markers_again() -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0, U0)))
    (request,) = rig.requests()
    rig.plan.disconnected(request)
    assert rig.requests() == []
    rig.plan.retry_due()
    (retry,) = rig.requests()
    assert (retry.broker_id, retry.markers) == (request.broker_id, request.markers)


def test_marker_missing_in_a_response_is_sent_again() -> None:
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0,)))
    rig.plan.on_response(rig.requests()[0], [{}])
    assert rig.plan.has_retries


def test_response_to_an_earlier_completion_is_ignored() -> None:
    """1. Markers are sent under coordinator epoch 3.
    2. The shard is loaded again under epoch 4, and a new completion begins.
    3. The response to the markers of epoch 3 arrives. It must not end the new completion (KAFKA-16352).
    4. The markers of epoch 4 are sent. Their response ends the new completion.
    """
    rig = Rig()
    rig.plan.start(0, send(partitions=(T0,)))
    (old,) = rig.requests()
    rig.plan.drop(0)
    assert len(rig.plan) == 0
    rig.plan.start(0, send(partitions=(T0,), coordinator_epoch=4))
    assert rig.requests() == []  # the request of epoch 3 is still in flight to broker 1
    rig.respond(old)
    assert rig.finished() == []
    (new,) = rig.requests()
    assert new.markers[0].coordinator_epoch == 4
    rig.respond(new)
    assert rig.finished() == [("a", CompletionResult.DONE)]


def test_dropped_shard_removes_only_its_own_queued_markers() -> None:
    rig = Rig()
    rig.plan.start(0, send("a", (T0,)))
    (request,) = rig.requests()
    rig.plan.start(0, send("b", (T0,)))
    rig.plan.start(1, send("c", (T0,)))
    rig.requests()
    rig.plan.drop(0)
    rig.plan.disconnected(request)
    rig.plan.retry_due()
    (remaining,) = rig.requests()
    assert [completion.transactional_id for completion in remaining.completions] == ["c"]


def test_queue_that_a_dropped_shard_leaves_empty_is_no_work() -> None:
    rig = Rig()
    rig.plan.start(0, send("a", (T0,)))
    (request,) = rig.requests()
    rig.plan.start(0, send("b", (T0,)))
    assert rig.requests() == []
    rig.plan.drop(0)
    rig.respond(request)
    assert not rig.plan.has_work
    assert rig.requests() == []


def test_after_an_unexpected_failure_each_marker_is_sent_in_a_request_of_its_own() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.plan.start(0, send(name, (T0,)))
    (request,) = rig.requests()
    rig.plan.failed(request)
    rig.plan.start(0, send("c", (T0,)))
    rig.plan.start(0, send("d", (T0,)))
    rig.plan.retry_due()
    sent = []
    while requests := rig.requests():
        (request,) = requests
        sent.append([completion.transactional_id for completion in request.completions])
        rig.respond(request)
    assert sent == [["c", "d"], ["a"], ["b"]]
    assert [name for name, _ in rig.finished()] == ["c", "d", "a", "b"]
