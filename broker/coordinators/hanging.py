"""Abort a hanging transaction for an operator, after this leader has found that no coordinator knows it (KIP-664).

Clients have no credentials. A client must therefore not end the transaction of another client by a marker, as a
transaction coordinator does. The exception is a hanging transaction, which `kafka-transactions abort` ends.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek.broker.coordinators.marker_writer import MarkerWriter
from odradek.broker.partition.registry import Partitions
from odradek.broker.quorum.peers import Channel, Peers
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import LISTED_PARTITIONS_TAG, PARTITION
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

PARTITIONS_MAX: Final = 100
"""Maximum partitions per WriteTxnMarkers request of a client. Kafka's tool and `odradek txns abort` send one."""
SEARCHES_MAX: Final = 10
"""Maximum requests of clients for which a broker searches the coordinators at a time. One search sends two requests to
each coordinator."""
TRANSACTION_VERSION: Final = 0
"""Version of the marker: its producer epoch is that of the open transaction (KIP-1228)."""

KnownPartitions = dict[int, dict[TopicPartition, None]]
"""Partitions of the transactions that a coordinator knows, by producer id."""


class TransactionSearch:
    """Search all transaction coordinators of the cluster for the transactions of producers."""

    def __init__(
        self,
        node_id: int,
        local: TransactionCoordinator,
        peers: Peers,
        leaders: Callable[[], Sequence[int]],
        *,
        timeout_ms: int,
    ) -> None:
        """`leaders` returns the leader of each partition of `__transaction_state` (see `Coordinators`).

        `timeout_ms` bounds the wait for each response.
        """
        self._node_id = node_id
        self._local = local
        self._peers = peers
        self._leaders = leaders
        self._timeout_ms = timeout_ms

    async def partitions_of(self, producer_ids: Sequence[int]) -> KnownPartitions:
        """Return the partitions of the transactions of these producers.

        Raise Refusal(COORDINATOR_NOT_AVAILABLE) if a coordinator does not respond, does not list a partition of
        `__transaction_state` that it leads, or changes during the search. A coordinator does not list a partition whose
        shard has failed, or whose leadership it has not applied yet.
        """
        leaders = tuple(self._leaders())
        if any(leader < 0 for leader in leaders):
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        known: KnownPartitions = {producer_id: {} for producer_id in producer_ids}
        for broker_id in sorted(dict.fromkeys(leaders)):
            is_local = broker_id == self._node_id
            listed = dict.fromkeys(await (self._add_local(known) if is_local else self._add_remote(broker_id, known)))
            if any(leader == broker_id and shard not in listed for shard, leader in enumerate(leaders)):
                raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if tuple(self._leaders()) != leaders:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return known

    async def _add_local(self, known: KnownPartitions) -> Sequence[int]:
        """Add the transactions of this broker. Return the partitions of `__transaction_state` that it lists."""
        listing = await self._local.describe_producers(known)
        for described in listing.transactions:
            known[described.transaction.producer_id].update(described.partitions)
        return listing.shards

    async def _add_remote(self, broker_id: int, known: KnownPartitions) -> Sequence[int]:
        """Like `_add_local`, for another broker. It lists no partition if it has an earlier version of Odradek."""
        request = ListTransactionsRequest(
            producer_id_filters=list(known), unknown_tagged_fields=((LISTED_PARTITIONS_TAG, b""),)
        )
        listed: ListTransactionsResponse = await self._request(broker_id, request)
        if listed.error_code:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        names = [state.transactional_id for state in listed.transaction_states]
        data = dict(listed.unknown_tagged_fields).get(LISTED_PARTITIONS_TAG, b"")
        shards = [shard for (shard,) in PARTITION.iter_unpack(data)]
        if not names:
            return shards
        described: DescribeTransactionsResponse = await self._request(broker_id, DescribeTransactionsRequest(names))
        for state in described.transaction_states:
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue  # It expired meanwhile, so it had no open transaction.
            if state.error_code:
                raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if state.producer_id in known:
                known[state.producer_id].update(
                    dict.fromkeys(
                        TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions
                    )
                )
        return shards

    async def _request(self, broker_id: int, request: ListTransactionsRequest | DescribeTransactionsRequest) -> Any:
        response = self._peers.request(broker_id, Channel.TRANSACTIONS, request, version=0, timeout_ms=self._timeout_ms)
        try:
            return await response
        except OSError as error:  # includes TimeoutError
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error


class HangingTransactions:
    """Abort hanging transactions in the partitions that this broker leads."""

    def __init__(self, partitions: Partitions, markers: MarkerWriter, search: TransactionSearch) -> None:
        self._partitions = partitions
        self._markers = markers
        self._search = search
        self._searches = 0

    async def abort(self, markers: Sequence[Marker]) -> MarkerResults:
        """Write the ABORT markers of hanging transactions. Return the error of each marker in each partition.

        * CLUSTER_AUTHORIZATION_FAILED: the marker is a COMMIT.
        * INVALID_TXN_STATE: the producer has no open transaction in the partition, or a coordinator knows it.
        * INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: an epoch is not the one that this leader knows.
        * COORDINATOR_NOT_AVAILABLE: a coordinator did not list all its transactions, so that it may know this one.

        Raise Refusal(INVALID_REQUEST) for more than PARTITIONS_MAX partitions, and Refusal(COORDINATOR_NOT_AVAILABLE)
        while SEARCHES_MAX other requests search the coordinators.
        """
        if sum(len(marker.partitions) for marker in markers) > PARTITIONS_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        open_since: dict[tuple[int, TopicPartition], int] = {}
        for number, marker in enumerate(markers):
            for key in marker.partitions:
                try:
                    open_since[number, key] = self._first_offset(marker, key)
                except Refusal as refusal:
                    results[number][key] = refusal.error
        if not open_since:
            return results
        if self._searches >= SEARCHES_MAX:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._searches += 1
        try:
            known = await self._search.partitions_of(
                list(dict.fromkeys(markers[number].producer_id for number, _ in open_since))
            )
        finally:
            self._searches -= 1
        for (number, key), first_offset in open_since.items():
            marker = markers[number]
            if key in known[marker.producer_id]:
                results[number][key] = ErrorCode.INVALID_TXN_STATE
            else:
                results[number][key] = await self._write(marker, key, first_offset)
        return results

    async def _write(self, marker: Marker, key: TopicPartition, first_offset: int) -> ErrorCode:
        """Write the marker, unless the transaction that began at `first_offset` ended during the search."""
        try:
            if self._first_offset(marker, key) != first_offset:
                return ErrorCode.INVALID_TXN_STATE
        except Refusal as refusal:
            return refusal.error
        single = Marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            commit=False,
            partitions=(key,),
            transaction_version=TRANSACTION_VERSION,
        )
        [outcome] = await self._markers.write([single])
        return outcome[key]

    def _first_offset(self, marker: Marker, key: TopicPartition) -> int:
        """Return the first offset of the open transaction that `marker` aborts. Raise the Refusals of `abort`."""
        if marker.commit:
            raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        partition = self._partitions.find(key.topic, key.partition)
        partition.check_leader()
        entry = partition.log.producers.entries.get(marker.producer_id)
        if entry is None or entry.transaction_first_offset is None:
            raise Refusal(ErrorCode.INVALID_TXN_STATE)
        if entry.epoch != marker.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        # Before the first marker of a producer no coordinator epoch is known (-1); Kafka's tool then sends 0.
        if max(entry.coordinator_epoch, 0) != marker.coordinator_epoch:
            raise Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        return entry.transaction_first_offset
