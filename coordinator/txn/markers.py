"""Plan which markers to send to which broker. This module is pure; `marker_driver` carries out the plan.

- Input: `start` (a prepared transaction), `resolve` (the leaders of partitions), `leaders_changed`, `on_response`,
  `disconnected`, `failed`, `retry_due`, `drop`.
- Output: `next_requests`, `take_finished`, `has_retries`.

Each partition is tracked on its own: a failing partition delays only its own transaction. At most one request is in
flight per broker; further markers wait for the next one. If the leader of a partition changes, its marker is sent to
the new leader immediately, without waiting for a response of the former leader: a paused broker may never respond.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.coordinator.txn.state import Partitions
from odradek.protocol.errors import ERRORS, ErrorCode
from odradek.protocol.special_values import NO_LEADER

MARKERS_PER_REQUEST_MAX: Final = 1_000
"""Maximum transactions per WriteTxnMarkers request. It bounds the size of a request and the work on the leader."""

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


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """WriteTxnMarkers request to one broker.

    `awaited` has the partitions whose result the response decides. A partition is removed from it when its leader
    changes: the response of the new leader decides then.
    """

    broker_id: int
    completions: tuple[Completion, ...]
    markers: tuple[Marker, ...]
    awaited: "PartitionsByCompletion"


@dataclass(frozen=True, slots=True)
class FinishedCompletion:
    """Completion with its result. `error` is the error of the marker if the result is not DONE."""

    completion: Completion
    result: CompletionResult
    error: ErrorCode = ErrorCode.NONE


PartitionsByCompletion = dict[Completion, Partitions]
"""Partitions that need the marker, by completion."""


class MarkerPlan:
    """Completions of all shards of this broker.

    Each partition that lacks its marker is in one place: unresolved, without leader, to be retried, in the queue of its
    leader, or in flight.
    """

    def __init__(self) -> None:
        self._completions: dict[str, Completion] = {}
        self._unresolved: PartitionsByCompletion = {}
        self._leaderless: PartitionsByCompletion = {}
        self._retries: PartitionsByCompletion = {}
        self._queues: dict[int, PartitionsByCompletion] = {}
        self._in_flight: dict[int, MarkerRequest] = {}
        self._finished: list[FinishedCompletion] = []

    def __len__(self) -> int:
        """Return the number of transactions that lack a marker."""
        return len(self._completions)

    @property
    def has_retries(self) -> bool:
        """True if a partition waits for `retry_due`."""
        return bool(self._retries)

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
        """Move unresolved partitions to the queues of their leaders.

        A partition that does not exist needs no marker: to wait for it would keep the transaction open permanently
        (KAFKA-5202). A partition without a leader waits for a change of the metadata.
        """
        unresolved, self._unresolved = self._unresolved, {}
        for completion, partitions in unresolved.items():
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
        """Resolve the leaders of the partitions again whose markers have failed."""
        for completion, partitions in self._retries.items():
            self._unresolved.setdefault(completion, {}).update(partitions)
        self._retries = {}

    def next_requests(self) -> list[MarkerRequest]:
        """Return one request for each broker with a queue and no request in flight. They count as in flight then."""
        requests: list[MarkerRequest] = []
        for broker_id in list(self._queues):
            if broker_id in self._in_flight:
                continue
            queue = self._queues[broker_id]
            taken: list[tuple[Completion, Partitions]] = []
            while queue and len(taken) < MARKERS_PER_REQUEST_MAX:
                completion = next(iter(queue))
                if taken and (completion.alone or taken[0][0].alone):
                    break
                partitions = queue.pop(completion)
                if self._is_current(completion):
                    taken.append((completion, partitions))
            if not queue:
                del self._queues[broker_id]
            if taken:
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

    def take_finished(self) -> list[FinishedCompletion]:
        """Return the completions that have finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def _is_current(self, completion: Completion) -> bool:
        return self._completions.get(completion.transactional_id) is completion

    def _waiting_work(self) -> tuple[PartitionsByCompletion, ...]:
        return self._unresolved, self._leaderless, self._retries, *self._queues.values()

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


def _for_partitions(marker: Marker, partitions: tuple[TopicPartition, ...]) -> Marker:
    return marker if partitions == marker.partitions else replace(marker, partitions=partitions)
