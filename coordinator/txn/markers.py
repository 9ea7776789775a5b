"""Which markers go to which broker: a pure plan.

In: `start` (a prepared transaction), `resolve` (who leads what), `leaders_changed`, `on_response`, `disconnected`,
`retry_due`, `drop`.
Out: `next_requests`, `take_finished`, `has_later`. The driver sends, waits and repeats.

Partitions are taken off one by one, and a partition that fails holds back nobody but its own transaction. At most one
request is in flight to a broker; what comes meanwhile goes along with the next one. A partition whose leader moves is
asked for at the new one at once, whatever the old one may still answer: a broker that is paused answers late or never.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.ports import NO_LEADER, Marker, MarkerResults, TopicPartition
from odradek.coordinator.txn.state import Partitions
from odradek.protocol.errors import ERRORS, ErrorCode

MARKERS_PER_REQUEST_MAX: Final = 1_000

_E: Final = ErrorCode
_DONE: Final = (_E.NONE, _E.UNSUPPORTED_FOR_MESSAGE_FORMAT, _E.UNSUPPORTED_VERSION)
_RETRY: Final = (
    _E.UNKNOWN_SERVER_ERROR,  # a bug there: said there, and not to be made worse here by a transaction that never ends
    *(code for code, row in ERRORS.items() if row.retriable and code is not _E.CORRUPT_MESSAGE),
)
_GIVE_UP: Final = (_E.INVALID_PRODUCER_EPOCH, _E.TRANSACTION_COORDINATOR_FENCED)

LeaderOf = Callable[[str, int], "int | None"]


class CompletionResult(Enum):
    DONE = "all markers written"
    GIVEN_UP = "a newer producer epoch or coordinator exists"
    FATAL = "a marker was refused for good"


@dataclass(eq=False, slots=True)
class Completion:
    """One transaction on its way from Prepare to Complete.

    Compared by identity: the same id may be on its way again, under a later coordinator epoch, when an answer to an
    earlier round comes in (KAFKA-16352).
    """

    transactional_id: str
    shard: int
    marker: Marker
    outstanding: Partitions


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """`waited_for`: the partitions that this answer counts for, less those that another leader has been asked for since."""

    broker_id: int
    completions: tuple[Completion, ...]
    markers: tuple[Marker, ...]
    waited_for: "Work"


@dataclass(frozen=True, slots=True)
class Finished:
    completion: Completion
    result: CompletionResult
    error: ErrorCode = ErrorCode.NONE


Work = dict[Completion, Partitions]


class MarkerPlan:
    """The completions of all shards that this broker coordinates."""

    def __init__(self) -> None:
        self._completions: dict[str, Completion] = {}
        self._unresolved: Work = {}
        self._leaderless: Work = {}
        self._later: Work = {}
        self._queues: dict[int, Work] = {}
        self._in_flight: dict[int, MarkerRequest] = {}
        self._finished: list[Finished] = []

    def __len__(self) -> int:
        """Transactions whose markers are not all written."""
        return len(self._completions)

    @property
    def has_later(self) -> bool:
        """Something waits for `retry_due`."""
        return bool(self._later)

    def outstanding(self, transactional_id: str) -> Partitions | None:
        """The partitions that still lack the marker; None when nothing is on its way for the id."""
        completion = self._completions.get(transactional_id)
        return None if completion is None else completion.outstanding

    def start(self, shard: int, send: SendMarkers) -> None:
        """Take up a prepared transaction, in place of an earlier round for the same id."""
        completion = Completion(send.transactional_id, shard, send.marker, dict.fromkeys(send.marker.partitions))
        self._completions[send.transactional_id] = completion
        if completion.outstanding:
            self._unresolved[completion] = dict(completion.outstanding)
        else:
            self._finish(completion, CompletionResult.DONE)

    def resolve(self, leader_of: LeaderOf) -> None:
        """Move what is unresolved to the queue of its leader.

        A partition that does not exist (any more) needs no marker: waiting for it would keep the transaction open for
        ever (KAFKA-5202). One without a leader waits for the metadata to name one.
        """
        unresolved, self._unresolved = self._unresolved, {}
        for completion, partitions in unresolved.items():
            if not self._is_current(completion):
                continue
            gone: list[TopicPartition] = []
            for partition in partitions:
                leader = leader_of(partition.topic, partition.partition)
                if leader is None:
                    gone.append(partition)
                elif leader == NO_LEADER:
                    self._leaderless.setdefault(completion, {})[partition] = None
                else:
                    self._queues.setdefault(leader, {}).setdefault(completion, {})[partition] = None
            self._written(completion, gone)

    def leaders_changed(self, changed: Partitions) -> None:
        """The metadata says something new about `changed`: look again for the leaders of those that lack a marker."""
        works = [self._leaderless, self._later, *self._queues.values()]
        works += [request.waited_for for request in self._in_flight.values()]
        for work in works:
            for completion in list(work):
                partitions = work[completion]
                for partition in [partition for partition in partitions if partition in changed]:
                    del partitions[partition]
                    self._unresolved.setdefault(completion, {})[partition] = None
                if not partitions:
                    del work[completion]

    def retry_due(self) -> None:
        """Look again for the leaders of what failed."""
        for completion, partitions in self._later.items():
            self._unresolved.setdefault(completion, {}).update(partitions)
        self._later = {}

    def next_requests(self) -> list[MarkerRequest]:
        """One request for every broker that has work and none in flight; in flight from now on."""
        requests: list[MarkerRequest] = []
        for broker_id in list(self._queues):
            if broker_id in self._in_flight:
                continue
            queue = self._queues[broker_id]
            taken: list[tuple[Completion, Partitions]] = []
            while queue and len(taken) < MARKERS_PER_REQUEST_MAX:
                completion = next(iter(queue))
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
        """Take in an answer. What it says about a completion that is no longer the current one is ignored."""
        self._in_flight.pop(request.broker_id, None)
        for completion, errors in zip(request.completions, results, strict=True):
            waited_for = request.waited_for.get(completion)
            if waited_for is not None and self._is_current(completion):
                self._take_result(completion, waited_for, errors)

    def disconnected(self, request: MarkerRequest) -> None:
        """Nothing is known about these markers: send them again (a marker written twice does no harm)."""
        self._in_flight.pop(request.broker_id, None)
        for completion, partitions in request.waited_for.items():
            if self._is_current(completion):
                self._later.setdefault(completion, {}).update(partitions)

    def drop(self, shard: int) -> None:
        """The shard is not coordinated here any more, or is about to be loaded: forget its completions."""
        self._completions = {
            transactional_id: completion
            for transactional_id, completion in self._completions.items()
            if completion.shard != shard
        }
        for work in self._waiting_work():
            for completion in [completion for completion in work if completion.shard == shard]:
                del work[completion]

    def take_finished(self) -> list[Finished]:
        """What has ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def _is_current(self, completion: Completion) -> bool:
        return self._completions.get(completion.transactional_id) is completion

    def _waiting_work(self) -> tuple[Work, ...]:
        return self._unresolved, self._leaderless, self._later, *self._queues.values()

    def _take_result(
        self, completion: Completion, waited_for: Partitions, errors: dict[TopicPartition, ErrorCode]
    ) -> None:
        written: list[TopicPartition] = []
        for partition in waited_for:
            error = errors.get(partition, _E.UNKNOWN_TOPIC_OR_PARTITION)  # not mentioned: not known to be written
            if error in _DONE:
                written.append(partition)
            elif error in _RETRY:
                self._later.setdefault(completion, {})[partition] = None
            else:
                result = CompletionResult.GIVEN_UP if error in _GIVE_UP else CompletionResult.FATAL
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
        """Only who takes it off the list may tell its end, so it ends once (KAFKA-10080)."""
        del self._completions[completion.transactional_id]
        for work in self._waiting_work():
            work.pop(completion, None)
        self._finished.append(Finished(completion, result, error))


def _for_partitions(marker: Marker, partitions: tuple[TopicPartition, ...]) -> Marker:
    return marker if partitions == marker.partitions else replace(marker, partitions=partitions)
