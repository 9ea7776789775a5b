"""Send verifications to the transaction coordinator, on this broker or on another broker.

The coordinator of a transactional id is the leader of its partition of `__transaction_state`. This broker's own
coordinator is called directly. Other brokers receive AddPartitionsToTxn, at most one request at a time each.
Transactions that arrive while a request is in flight go into the next request, as in Kafka's AddPartitionsToTxnManager.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from odradek.broker.coordinators.txn_verification import Coordinator
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.requests.error_map import known_error
from odradek.coordinator.txn.commands import PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

ADD_PARTITIONS_VERSION: Final = 5
"""Version of the AddPartitionsToTxn requests between brokers. Versions from 4 on have batches and `verify_only`
(KIP-890)."""
TRANSACTIONS_PER_REQUEST_MAX: Final = 1_000
"""Maximum transactions per AddPartitionsToTxn request. It bounds the time for which one request occupies the
coordinator."""
RESPONSE_MS_MAX: Final = 5_000
"""Maximum wait for the response of a coordinator, in milliseconds. After it, producers receive a retriable error."""


class Coordinators:
    """All transaction coordinators of the cluster, on this broker and on other brokers."""

    def __init__(
        self,
        node_id: int,
        local: Coordinator,
        peers: Peers,
        leaders: Callable[[], Sequence[int]],
        *,
        timeout_ms: int,
    ) -> None:
        """`local` is this broker's own coordinator.

        `leaders` returns the leader of each partition of `__transaction_state`, negative for a partition without
        leader; it returns an empty sequence while the topic does not exist.
        """
        self._node_id = node_id
        self._local = local
        self._peers = peers
        self._leaders = leaders
        self._timeout_ms = min(timeout_ms, RESPONSE_MS_MAX)
        self._queues: dict[int, _CoordinatorQueue] = {}

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """Return NONE for each partition of the transaction. Raise Refusal, directly or through the future."""
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == self._node_id:
            return self._local.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
        transaction = _Transaction(transactional_id, producer_id, producer_epoch, verify_only=True)
        return self._queue_of(broker_id).add(transaction, partitions)

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """Add the partitions to the transaction. Return NONE for each partition that belongs to it now.

        Raise Refusal, directly or through the future.
        """
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == self._node_id:
            return self._local.add_partitions_for_produce(transactional_id, producer_id, producer_epoch, partitions)
        transaction = _Transaction(transactional_id, producer_id, producer_epoch, verify_only=False)
        return self._queue_of(broker_id).add(transaction, partitions)

    def leaders_changed(self) -> None:
        """Fail with NOT_COORDINATOR the verifications whose coordinator is on another broker now."""
        leaders = self._leaders()
        for broker_id, queue in self._queues.items():
            queue.drop(partial(_is_led_elsewhere, leaders, broker_id))

    def _coordinator_of(self, transactional_id: str) -> int:
        leader = _leader(self._leaders(), transactional_id)
        if leader < 0:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    def _queue_of(self, broker_id: int) -> "_CoordinatorQueue":
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _CoordinatorQueue(broker_id, self._peers, self._timeout_ms)
        return queue


def _leader(leaders: Sequence[int], transactional_id: str) -> int:
    return leaders[partition_for(transactional_id, len(leaders))] if leaders else -1


def _is_led_elsewhere(leaders: Sequence[int], broker_id: int, transaction: "_Transaction") -> bool:
    """Return True if the coordinator of `transaction` is on another broker than `broker_id`."""
    return _leader(leaders, transaction.transactional_id) != broker_id


@dataclass(eq=False, slots=True)
class _Transaction:
    """One transaction of an AddPartitionsToTxn request, with the futures of the verifications that wait for it."""

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
        """Fail all waiting verifications with `error`."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(Refusal(error))

    def complete(self, errors: PartitionErrors) -> None:
        """Complete all waiting verifications with `errors`."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(errors)


class _CoordinatorQueue:
    """Queue of the verifications for the coordinators on one broker."""

    def __init__(self, broker_id: int, peers: Peers, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._queue: dict[tuple[str, int, bool], _Transaction] = {}
        self._in_flight: tuple[_Transaction, ...] = ()

    def add(self, transaction: _Transaction, partitions: Sequence[TopicPartition]) -> "Future[PartitionErrors]":
        """Queue a verification. Its result may contain further partitions of the same transaction.

        Raise Refusal(INVALID_PRODUCER_EPOCH) if a newer epoch of the producer is queued.
        """
        queued = self._queue.get(transaction.key)
        if queued is None or queued.producer_epoch < transaction.producer_epoch:
            # The queued verification has an older epoch: that producer has been fenced meanwhile.
            if queued is not None:
                queued.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            queued = self._queue[transaction.key] = transaction
        elif queued.producer_epoch > transaction.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        # The same producer again, with another partition or a retry. Kafka fails the queued verification with
        # NETWORK_EXCEPTION (AddPartitionsToTxnManager.addTxnData); here one request serves both.
        queued.partitions.update(dict.fromkeys(partitions))
        future: Future[PartitionErrors] = get_running_loop().create_future()
        queued.waiting.append(future)
        self._send()
        return future

    def drop(self, is_led_elsewhere: Callable[[_Transaction], bool]) -> None:
        """Fail the verifications, queued or in flight, for which `is_led_elsewhere` returns True."""
        for transaction in (*self._in_flight, *self._queue.values()):
            if is_led_elsewhere(transaction):
                self._queue.pop(transaction.key, None)
                transaction.refuse(ErrorCode.NOT_COORDINATOR)

    def _send(self) -> None:
        if self._in_flight or not self._queue:
            return
        keys = list(self._queue)[:TRANSACTIONS_PER_REQUEST_MAX]
        self._in_flight = tuple(self._queue.pop(key) for key in keys)
        request = AddPartitionsToTxnRequest(transactions=[_request_of(transaction) for transaction in self._in_flight])
        response = self._peers.request(
            self._broker_id, Channel.VERIFICATION, request, ADD_PARTITIONS_VERSION, timeout_ms=self._timeout_ms
        )
        response.add_done_callback(partial(self._received, self._in_flight))

    def _received(self, transactions: tuple[_Transaction, ...], response: "Future[Any]") -> None:
        self._in_flight = ()
        if response.cancelled() or response.exception() is not None:
            for transaction in transactions:
                transaction.refuse(ErrorCode.NETWORK_EXCEPTION)
        else:
            _complete_all(transactions, response.result())
        self._send()


def _request_of(transaction: _Transaction) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.verify_only,
        [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
    )


def _complete_all(transactions: Sequence[_Transaction], response: AddPartitionsToTxnResponse) -> None:
    """Pass the results of a response to the verifications. They have the order of the request."""
    results = response.results_by_transaction
    error = known_error(response.error_code)
    if error is ErrorCode.NONE and [result.transactional_id for result in results] != [
        transaction.transactional_id for transaction in transactions
    ]:
        error = ErrorCode.NETWORK_EXCEPTION
    if error is not ErrorCode.NONE:
        for transaction in transactions:
            transaction.refuse(error)
        return
    for transaction, result in zip(transactions, results, strict=True):
        errors = {
            TopicPartition(topic.name, partition.partition_index): known_error(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        # A partition that the response omits counts as not verified.
        transaction.complete(
            {partition: errors.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in transaction.partitions}
        )
