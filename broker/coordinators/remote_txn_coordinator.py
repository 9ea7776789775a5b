"""Asking a transaction coordinator on behalf of a produce, wherever the coordinator is.

The coordinator of an id is the leader of its partition of `__transaction_state`. When that is this broker, it is a call.
Another broker is sent AddPartitionsToTxn: one request at a time, and whatever comes meanwhile goes along with the next one
(kafka-facts 6.6).
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from odradek.broker.coordinators.txn_verification import Coordinator
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.requests.error_map import known_error
from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn.commands import PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

ADD_PARTITIONS_VERSION: Final = 5
TRANSACTIONS_PER_REQUEST_MAX: Final = 1_000
ANSWER_MS_MAX: Final = 5_000
"""How long a coordinator's answer is waited for whose connection stands; the producer is told to come again then."""


class Coordinators:
    """All transaction coordinators of the cluster (`odradek.broker.coordinators.txn_verification.Coordinator`)."""

    def __init__(
        self,
        node_id: int,
        local: Coordinator,
        peers: Peers,
        leaders: Callable[[], Sequence[int]],
        *,
        timeout_ms: int,
    ) -> None:
        """`local` is this broker's own. `leaders()`: who leads each partition of `__transaction_state`, below zero for nobody; empty without the topic."""
        self._node_id = node_id
        self._local = local
        self._peers = peers
        self._leaders = leaders
        self._timeout_ms = min(timeout_ms, ANSWER_MS_MAX)
        self._lanes: dict[int, _Lane] = {}

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """NONE for partitions that are part of the transaction. Raises Refusal at once, or by the future."""
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == self._node_id:
            return self._local.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
        asked = _Asked(transactional_id, producer_id, producer_epoch, verify_only=True)
        return self._lane(broker_id).ask(asked, partitions)

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """NONE for each partition that is part of the transaction now. Raises as `verify_partitions`."""
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == self._node_id:
            return self._local.add_partitions_for_produce(transactional_id, producer_id, producer_epoch, partitions)
        asked = _Asked(transactional_id, producer_id, producer_epoch, verify_only=False)
        return self._lane(broker_id).ask(asked, partitions)

    def leaders_changed(self) -> None:
        """Somebody else leads a partition of `__transaction_state`: who waits for its old leader waits no longer."""
        leaders = self._leaders()
        for broker_id, lane in self._lanes.items():
            lane.drop(lambda asked, leader=broker_id: _leader(leaders, asked.transactional_id) != leader)  # type: ignore[misc]

    def _coordinator_of(self, transactional_id: str) -> int:
        leader = _leader(self._leaders(), transactional_id)
        if leader < 0:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    def _lane(self, broker_id: int) -> "_Lane":
        lane = self._lanes.get(broker_id)
        if lane is None:
            lane = self._lanes[broker_id] = _Lane(broker_id, self._peers, self._timeout_ms)
        return lane


def _leader(leaders: Sequence[int], transactional_id: str) -> int:
    return leaders[partition_for(transactional_id, len(leaders))] if leaders else -1


@dataclass(eq=False, slots=True)
class _Asked:
    """One transaction's line in a request, and those who wait for what becomes of it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    waiting: "list[Future[PartitionErrors]]" = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, bool]:
        return self.transactional_id, self.producer_id, self.verify_only

    def refuse(self, error: ErrorCode) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(Refusal(error))

    def answer(self, errors: PartitionErrors) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(errors)


class _Lane:
    """The way to one coordinator."""

    def __init__(self, broker_id: int, peers: Peers, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._queue: dict[tuple[str, int, bool], _Asked] = {}
        self._in_flight: tuple[_Asked, ...] = ()

    def ask(self, asked: _Asked, partitions: Sequence[TopicPartition]) -> "Future[PartitionErrors]":
        """The future's errors may be of more partitions than were asked for here."""
        queued = self._queue.get(asked.key)
        if queued is None or queued.producer_epoch < asked.producer_epoch:
            # A batch of an older epoch waits in the queue: its producer has been fenced since.
            if queued is not None:
                queued.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            queued = self._queue[asked.key] = asked
        elif queued.producer_epoch > asked.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        # The same producer once more, with another partition or again: Kafka fails the one that waits, since the producer
        # might have given it up; here both are answered.
        queued.partitions.update(dict.fromkeys(partitions))
        future: Future[PartitionErrors] = get_running_loop().create_future()
        queued.waiting.append(future)
        self._send()
        return future

    def drop(self, is_led_elsewhere: Callable[[_Asked], bool]) -> None:
        for asked in (*self._in_flight, *self._queue.values()):
            if is_led_elsewhere(asked):
                self._queue.pop(asked.key, None)
                asked.refuse(ErrorCode.NOT_COORDINATOR)

    def _send(self) -> None:
        if self._in_flight or not self._queue:
            return
        keys = list(self._queue)[:TRANSACTIONS_PER_REQUEST_MAX]
        self._in_flight = tuple(self._queue.pop(key) for key in keys)
        request = AddPartitionsToTxnRequest(transactions=[_line(asked) for asked in self._in_flight])
        answer = self._peers.request(
            self._broker_id, Channel.VERIFICATION, request, ADD_PARTITIONS_VERSION, timeout_ms=self._timeout_ms
        )
        answer.add_done_callback(partial(self._answered, self._in_flight))

    def _answered(self, asked: tuple[_Asked, ...], answer: "Future[Any]") -> None:
        self._in_flight = ()
        if answer.cancelled() or answer.exception() is not None:
            for one in asked:
                one.refuse(ErrorCode.NETWORK_EXCEPTION)
        else:
            _tell(asked, answer.result())
        self._send()


def _line(asked: _Asked) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in asked.partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        asked.verify_only,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
    )


def _tell(asked: Sequence[_Asked], response: AddPartitionsToTxnResponse) -> None:
    """Answers stand in the order of the request, and name the ids."""
    results = response.results_by_transaction
    error = known_error(response.error_code)
    if error is ErrorCode.NONE and [result.transactional_id for result in results] != [
        one.transactional_id for one in asked
    ]:
        error = ErrorCode.NETWORK_EXCEPTION
    if error is not ErrorCode.NONE:
        for one in asked:
            one.refuse(error)
        return
    for one, result in zip(asked, results, strict=True):
        told = {
            TopicPartition(topic.name, answer.partition_index): known_error(answer.partition_error_code)
            for topic in result.topic_results
            for answer in topic.results_by_partition
        }
        # A partition that the answer leaves out is not known to be part of the transaction.
        one.answer({partition: told.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in one.partitions})
