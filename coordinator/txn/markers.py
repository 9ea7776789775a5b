"""Plan which markers to send to which broker. This module is pure; `marker_driver` carries out the plan.

- Input: `start` (a prepared transaction), `resolve` (the leaders of partitions), `leaders_changed`, `on_response`,
  `disconnected`, `failed`, `retry_due`, `drop`.
- Output: `next_requests`, `take_finished`, `has_work`, `has_retries`.

Each partition is tracked on its own: a failing partition delays only its own transaction. At most one request is in
flight per broker; further markers wait for the next one. If the leader of a partition changes, its marker is sent to
the new leader immediately, without waiting for a response of the former leader: a paused broker may never respond.

Each call of `resolve`, `next_requests` and `take_finished` does a bounded part of the work. While `has_work` is True,
they are called again in the next turn of the event loop.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final

from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.coordinator.txn.state import Partitions
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ERRORS, ErrorCode
from odradek.protocol.special_values import NO_LEADER

MARKERS_PER_REQUEST_MAX: Final = 1_000
"""Maximum markers per WriteTxnMarkers request, one per transaction and partition. A transaction with more partitions is
divided. It bounds the size of a request, the work on the leader, and the work for the response (about 2 ms)."""
MARKERS_RESOLVED_MAX: Final = 2_000
"""Maximum markers per turn of the event loop whose leader is determined. It takes about 2 ms."""
MARKERS_SENT_MAX: Final = 200
"""Markers after which no further request is created in the same turn of the event loop. If this broker is the leader,
the request appends its markers before it returns, which takes about 25 µs per marker."""
COMPLETIONS_PER_TURN_MAX: Final = 100
"""Maximum Complete records per turn of the event loop. A record takes about 25 µs."""

_E: Final = ErrorCode
_DONE: Final = (_E.NONE, _E.UNSUPPORTED_FOR_MESSAGE_FORMAT, _E.UNSUPPORTED_VERSION)
_RETRY: Final = (
    _E.UNKNOWN_SERVER_ERROR,  # a bug of the leader, which logs it; without a retry the transaction would stay open
    *(code for code, row in ERRORS.items() if row.retriable and code is not _E.CORRUPT_MESSAGE),
)
_FENCED: Final = (_E.INVALID_PRODUCER_EPOCH, _E.TRANSACTION_COORDINATOR_FENCED)

LeaderOf = Callable[[str, int], "int | None"]
"""Function that returns the leader of a topic partition, as `odradek.coordinator.txn.ports.Leaders.leader_of`."""


class CompletionResult(Enum):
    """Result of the markers of one transaction."""

    DONE = "all markers written"
    FENCED = "a newer producer epoch or coordinator exists"
    FATAL = "a marker was refused with an error that is not retriable"


@dataclass(eq=False, slots=True)
class Completion:
    """Transaction between Prepare and Complete. `outstanding` has the partitions that lack the marker.

    Instances are compared by identity. A response to a request of an earlier completion may arrive when the same id is
    completed again with a later coordinator epoch (KAFKA-16352).
    """

    transactional_id: str
    shard: int
    marker: Marker
    outstanding: Partitions
    alone: bool = False
    """True if a request with this marker has failed with an unexpected exception. Requests contain no other then."""


@frozen_dataclass(frozen=True, slots=True)
class MarkerRequest:
    """WriteTxnMarkers request to one broker.

    `awaited` has the partitions whose result the response decides. A partition is removed from it when its leader
    changes: the response of the new leader decides then.
    """

    broker_id: int
    completions: tuple[Completion, ...]
    markers: tuple[Marker, ...]
    awaited: "PartitionsByCompletion"


@frozen_dataclass(frozen=True, slots=True)
class FinishedCompletion:
    """Completion with its result. `error` is the error of the marker if the result is not DONE."""

    completion: Completion
    result: CompletionResult
    error: ErrorCode = ErrorCode.NONE


PartitionsByCompletion = dict[Completion, Partitions]
"""Partitions that need the marker, by completion."""


class MarkerPlan:
    """Completions of all shards of this broker.

    Each partition that lacks its marker is in one place: unresolved, without leader, to be retried later, due for a
    retry, in the queue of its leader, or in flight.
    """

    def __init__(self) -> None:
        self._completions: dict[str, Completion] = {}
        self._unresolved: PartitionsByCompletion = {}
        self._leaderless: PartitionsByCompletion = {}
        self._retries: PartitionsByCompletion = {}
        self._due: PartitionsByCompletion = {}
        self._queues: dict[int, PartitionsByCompletion] = {}
        self._in_flight: dict[int, MarkerRequest] = {}
        self._finished: deque[FinishedCompletion] = deque()

    def __len__(self) -> int:
        """Return the number of transactions that lack a marker."""
        return len(self._completions)

    @property
    def has_work(self) -> bool:
        """True if a call of `resolve`, `next_requests` or `take_finished` has work now."""
        if self._unresolved or self._due or self._finished:
            return True
        return any(queue and broker_id not in self._in_flight for broker_id, queue in self._queues.items())

    @property
    def has_retries(self) -> bool:
        """True if a partition waits for `retry_due`, and the partitions of the last `retry_due` are resolved."""
        return bool(self._retries) and not self._due

    def outstanding(self, transactional_id: str) -> Partitions | None:
        """Return the partitions of the id that lack the marker; None if no marker of the id is outstanding."""
        completion = self._completions.get(transactional_id)
        return None if completion is None else completion.outstanding

    def start(self, shard: int, send: SendMarkers) -> None:
        """Add a prepared transaction. It replaces an earlier completion of the same id."""
        completion = Completion(send.transactional_id, shard, send.marker, dict.fromkeys(send.marker.partitions))
        self._completions[send.transactional_id] = completion
        if completion.outstanding:
            self._unresolved[completion] = dict(completion.outstanding)
        else:
            self._finish(completion, CompletionResult.DONE)

    def resolve(self, leader_of: LeaderOf) -> None:
        """Move the next MARKERS_RESOLVED_MAX unresolved partitions to the queues of their leaders.

        A partition that does not exist needs no marker: to wait for it would keep the transaction open permanently
        (KAFKA-5202). A partition without a leader waits for a change of the metadata.
        """
        taken = _take(self._unresolved, MARKERS_RESOLVED_MAX)
        taken += _take(self._due, MARKERS_RESOLVED_MAX - sum(len(partitions) for _, partitions in taken))
        for completion, partitions in taken:
            if not self._is_current(completion):
                continue
            deleted: list[TopicPartition] = []
            for partition in partitions:
                leader = leader_of(partition.topic, partition.partition)
                if leader is None:
                    deleted.append(partition)
                elif leader == NO_LEADER:
                    self._leaderless.setdefault(completion, {})[partition] = None
                else:
                    self._queues.setdefault(leader, {}).setdefault(completion, {})[partition] = None
            self._written(completion, deleted)

    def leaders_changed(self, changed: Partitions) -> None:
        """Resolve the leaders of `changed` again, where they lack a marker: their metadata has changed."""
        works = [self._leaderless, self._retries, *self._queues.values()]
        works += [request.awaited for request in self._in_flight.values()]
        for work in works:
            for completion in list(work):
                partitions = work[completion]
                for partition in [partition for partition in partitions if partition in changed]:
                    del partitions[partition]
                    self._unresolved.setdefault(completion, {})[partition] = None
                if not partitions:
                    del work[completion]

    def retry_due(self) -> None:
        """Resolve the leaders of the partitions again whose markers have failed.

        It has no effect without `has_retries`. Markers that fail meanwhile wait for the next call: they must not be
        sent again without a delay.
        """
        if not self._due:
            self._due, self._retries = self._retries, {}

    def next_requests(self) -> list[MarkerRequest]:
        """Return one request for each broker with a queue and no request in flight. They count as in flight then.

        After MARKERS_SENT_MAX markers, the next call returns the requests of the remaining brokers.
        """
        requests: list[MarkerRequest] = []
        count = 0
        for broker_id in [broker_id for broker_id in self._queues if broker_id not in self._in_flight]:
            if count >= MARKERS_SENT_MAX:
                break
            queue = self._queues.pop(broker_id)
            taken = [(each, partitions) for each, partitions in _take_request(queue) if self._is_current(each)]
            if queue:
                self._queues[broker_id] = queue  # after the other brokers, which the next call serves first
            if taken:
                count += sum(len(partitions) for _, partitions in taken)
                markers = tuple(_for_partitions(completion.marker, tuple(parts)) for completion, parts in taken)
                request = MarkerRequest(broker_id, tuple(completion for completion, _ in taken), markers, dict(taken))
                self._in_flight[broker_id] = request
                requests.append(request)
        return requests

    def on_response(self, request: MarkerRequest, results: MarkerResults) -> None:
        """Apply a response. Ignore its results for completions that were replaced or dropped."""
        self._in_flight.pop(request.broker_id, None)
        for completion, errors in zip(request.completions, results, strict=True):
            awaited = request.awaited.get(completion)
            if awaited is not None and self._is_current(completion):
                self._take_result(completion, awaited, errors)

    def disconnected(self, request: MarkerRequest) -> None:
        """Note that a request has no response. Its markers are sent again: a duplicate marker changes nothing."""
        self._in_flight.pop(request.broker_id, None)
        for completion, partitions in request.awaited.items():
            if self._is_current(completion):
                self._retries.setdefault(completion, {}).update(partitions)

    def failed(self, request: MarkerRequest) -> None:
        """Note that a request failed with an unexpected exception. Each marker is sent again in a request of its own.

        One marker that always fails then delays no other marker.
        """
        for completion in request.completions:
            completion.alone = True
        self.disconnected(request)

    def drop(self, shard: int) -> None:
        """Drop all completions of a shard that was resigned or will be loaded again."""
        self._completions = {
            transactional_id: completion
            for transactional_id, completion in self._completions.items()
            if completion.shard != shard
        }
        for work in self._waiting_work():
            for completion in [completion for completion in work if completion.shard == shard]:
                del work[completion]
        self._finished = deque(finished for finished in self._finished if finished.completion.shard != shard)

    def take_finished(self) -> list[FinishedCompletion]:
        """Remove and return the next COMPLETIONS_PER_TURN_MAX finished completions."""
        count = min(len(self._finished), COMPLETIONS_PER_TURN_MAX)
        return [self._finished.popleft() for _ in range(count)]

    def _is_current(self, completion: Completion) -> bool:
        return self._completions.get(completion.transactional_id) is completion

    def _waiting_work(self) -> tuple[PartitionsByCompletion, ...]:
        return self._unresolved, self._leaderless, self._retries, self._due, *self._queues.values()

    def _take_result(
        self, completion: Completion, awaited: Partitions, errors: dict[TopicPartition, ErrorCode]
    ) -> None:
        written: list[TopicPartition] = []
        for partition in awaited:
            error = errors.get(partition, _E.UNKNOWN_TOPIC_OR_PARTITION)  # missing in the response: send it again
            if error in _DONE:
                written.append(partition)
            elif error in _RETRY:
                self._retries.setdefault(completion, {})[partition] = None
            else:
                result = CompletionResult.FENCED if error in _FENCED else CompletionResult.FATAL
                self._finish(completion, result, error)
                return
        self._written(completion, written)

    def _written(self, completion: Completion, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        for partition in partitions:
            completion.outstanding.pop(partition, None)
        if not completion.outstanding:
            self._finish(completion, CompletionResult.DONE)

    def _finish(self, completion: Completion, result: CompletionResult, error: ErrorCode = ErrorCode.NONE) -> None:
        """Remove the completion and report its result. The removal ensures one report per completion (KAFKA-10080)."""
        del self._completions[completion.transactional_id]
        for work in self._waiting_work():
            work.pop(completion, None)
        self._finished.append(FinishedCompletion(completion, result, error))


def _take(work: PartitionsByCompletion, markers_max: int) -> list[tuple[Completion, Partitions]]:
    """Remove and return the first `markers_max` partitions of `work`, with their completions."""
    taken: list[tuple[Completion, Partitions]] = []
    # Each completion has at least one partition. One iteration per call: it skips all entries deleted before.
    for completion in list(islice(work, markers_max)):
        if markers_max <= 0:
            break
        partitions = _take_partitions(work, completion, markers_max)
        taken.append((completion, partitions))
        markers_max -= len(partitions)
    return taken


def _take_request(queue: PartitionsByCompletion) -> list[tuple[Completion, Partitions]]:
    """Remove and return the markers of the next request from `queue`, which may be empty."""
    first = next(iter(queue), None)
    if first is not None and first.alone:
        return [(first, _take_partitions(queue, first, MARKERS_PER_REQUEST_MAX))]
    taken: list[tuple[Completion, Partitions]] = []
    left = MARKERS_PER_REQUEST_MAX
    for completion in list(islice(queue, left)):
        if completion.alone or left <= 0:
            break
        partitions = _take_partitions(queue, completion, left)
        taken.append((completion, partitions))
        left -= len(partitions)
    return taken


def _take_partitions(work: PartitionsByCompletion, completion: Completion, markers_max: int) -> Partitions:
    """Remove and return at most `markers_max` partitions of one completion."""
    partitions = work[completion]
    if len(partitions) <= markers_max:
        return work.pop(completion)
    taken = dict.fromkeys(islice(partitions, markers_max))
    for partition in taken:
        del partitions[partition]
    return taken


def _for_partitions(marker: Marker, partitions: tuple[TopicPartition, ...]) -> Marker:
    return marker if partitions == marker.partitions else replace(marker, partitions=partitions)
