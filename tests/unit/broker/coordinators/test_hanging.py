"""WriteTxnMarkers on a listener for clients: only hanging transactions are aborted."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import write_txn_markers
from odradek.broker.coordinators.hanging import PARTITIONS_MAX, SEARCHES_MAX, HangingTransactions, TransactionSearch
from odradek.broker.quorum.peers import Channel
from odradek.broker.requests.listener import CLIENT
from odradek.coordinator.txn.ports import Marker, TopicPartition
from odradek.coordinator.txn.service import TransactionListing
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import LISTED_PARTITIONS_TAG, PARTITION
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from odradek.protocol.messages.describe_transactions import TransactionState as DescribedState
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NODE, NOW_MS, Rig, batch

E = ErrorCode
OTHER = 2
PRODUCER = 7
EPOCH = 3
KEY = TopicPartition("t", 0)


class LocalCoordinator:
    """In-memory coordinator of this broker."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[TopicPartition, ...]] = {}
        self.shards: tuple[int, ...] = (0, 2)

    async def describe_producers(self, producer_ids: Collection[int]) -> TransactionListing:
        transactions: list[Any] = [
            SimpleNamespace(transaction=SimpleNamespace(producer_id=producer_id), partitions=dict.fromkeys(partitions))
            for producer_id, partitions in self.known.items()
            if producer_id in producer_ids
        ]
        return TransactionListing(self.shards, tuple(transactions))


class RemoteCoordinator:
    """In-memory coordinator of another broker. A waiting one does not respond until `release` is called."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[TopicPartition, ...]] = {}
        self.shards: tuple[int, ...] | None = (1,)
        self.listing_error = E.NONE
        self.describing_error = E.NONE
        self.failure: OSError | None = None
        self.waiting: list[asyncio.Future[None]] | None = None

    def request(
        self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int
    ) -> "asyncio.Future[Any]":
        assert (node_id, channel, version, timeout_ms) == (OTHER, Channel.TRANSACTIONS, 0, 5_000)
        return asyncio.ensure_future(self._response(request))

    async def _response(self, request: Any) -> Any:
        if self.waiting is not None:
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]
        if self.failure is not None:
            raise self.failure
        if isinstance(request, ListTransactionsRequest):
            found = [one for one in request.producer_id_filters if one in self.known]
            states = [TransactionState(f"id-{one}", one, "Ongoing") for one in found]
            assert request.unknown_tagged_fields == ((LISTED_PARTITIONS_TAG, b""),)
            shards = None if self.shards is None else b"".join(map(PARTITION.pack, self.shards))
            return ListTransactionsResponse(
                error_code=self.listing_error,
                transaction_states=states,
                unknown_tagged_fields=() if shards is None else ((LISTED_PARTITIONS_TAG, shards),),
            )
        assert isinstance(request, DescribeTransactionsRequest)
        described = []
        for name in request.transactional_ids:
            producer_id = int(name.removeprefix("id-"))
            topics = [TopicData(key.topic, [key.partition]) for key in self.known[producer_id]]
            described.append(
                DescribedState(
                    error_code=self.describing_error, transactional_id=name, producer_id=producer_id, topics=topics
                )
            )
        return DescribeTransactionsResponse(transaction_states=described)


class HangingRig(Rig):
    """Broker with an open transaction in t-0, and two coordinators that do not know it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.session.listener = replace(self.session.listener, roles=(CLIENT,))
        self.local = LocalCoordinator()
        self.remote = RemoteCoordinator()
        self.leaders = [NODE, OTHER, NODE]
        local: Any = self.local
        remote: Any = self.remote
        search = TransactionSearch(NODE, local, remote, lambda: self.leaders, timeout_ms=5_000)
        self.services.hanging = HangingTransactions(self.partitions, self.services.markers, search)
        self.topic("t")
        self.open_transaction()

    def open_transaction(self, sequence: int = 0) -> None:
        producers = self.partition().log.producers
        guard = producers.start_verification(PRODUCER, EPOCH, sequence, supports_epoch_bump=False)
        data = batch(producer_id=PRODUCER, epoch=EPOCH, sequence=sequence, transactional=True)
        self.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)

    async def abort(
        self, *, commit: bool = False, epoch: int = EPOCH, coordinator_epoch: int = 0, producer_id: int = PRODUCER
    ) -> ErrorCode:
        topics = [WritableTxnMarkerTopic("t", [0])]
        request = WriteTxnMarkersRequest([WritableTxnMarker(producer_id, epoch, commit, topics, coordinator_epoch)])
        handled: Any = write_txn_markers.handle(self.context(27, 1), request)
        response = await handled
        return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)

    async def abort_or_refusal(self) -> ErrorCode:
        try:
            return await self.abort()
        except Refusal as refusal:
            return refusal.error

    @property
    def is_open(self) -> bool:
        return self.partition().log.producers.has_ongoing_transaction(PRODUCER, EPOCH)


async def test_abort_of_a_hanging_transaction_is_written(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    assert await rig.abort() is E.NONE
    assert not rig.is_open
    assert rig.partition().log.last_stable_offset == 2


async def test_transaction_that_hangs_in_one_partition_only_is_aborted_there(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    rig.local.known[PRODUCER] = (TopicPartition("t", 1),)
    rig.remote.known[PRODUCER] = (TopicPartition("u", 0),)
    assert await rig.abort() is E.NONE
    assert not rig.is_open


@pytest.mark.parametrize("where", ["local", "remote"])
async def test_abort_of_a_transaction_that_a_coordinator_knows_is_refused(tmp_path: Path, where: str) -> None:
    rig = HangingRig(tmp_path)
    getattr(rig, where).known[PRODUCER] = (KEY,)
    assert await rig.abort() is E.INVALID_TXN_STATE
    assert rig.is_open


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"commit": True}, E.CLUSTER_AUTHORIZATION_FAILED),
        ({"epoch": EPOCH + 1}, E.INVALID_PRODUCER_EPOCH),
        ({"epoch": EPOCH - 1}, E.INVALID_PRODUCER_EPOCH),
        ({"coordinator_epoch": 1}, E.TRANSACTION_COORDINATOR_FENCED),
        ({"coordinator_epoch": 2**31 - 1}, E.TRANSACTION_COORDINATOR_FENCED),
        ({"producer_id": 8}, E.INVALID_TXN_STATE),
    ],
)
async def test_marker_that_does_not_abort_the_open_transaction_is_refused(
    tmp_path: Path, arguments: dict[str, Any], error: ErrorCode
) -> None:
    rig = HangingRig(tmp_path)
    end = rig.partition().log.log_end_offset
    assert await rig.abort(**arguments) is error
    assert rig.is_open
    assert rig.partition().log.log_end_offset == end


async def test_abort_is_refused_while_a_coordinator_may_know_the_transaction(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    rig.leaders[2] = -1
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    rig.leaders[2] = NODE
    rig.remote.failure = TimeoutError()
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    rig.remote.failure = None
    rig.remote.listing_error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    rig.remote.listing_error = E.NONE
    rig.remote.known[PRODUCER] = ()
    rig.remote.describing_error = E.NOT_COORDINATOR
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    assert rig.is_open
    rig.remote.describing_error = E.TRANSACTIONAL_ID_NOT_FOUND
    assert await rig.abort_or_refusal() is E.NONE


@pytest.mark.parametrize("remote", [(), (0, 2), None], ids=["no shard", "other shards", "earlier version"])
async def test_abort_is_refused_if_a_coordinator_does_not_list_a_shard_that_it_leads(
    tmp_path: Path, remote: tuple[int, ...] | None
) -> None:
    rig = HangingRig(tmp_path)
    rig.remote.shards = remote
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    rig.remote.shards, rig.local.shards = (1,), (0,)
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    assert rig.is_open


async def waiting_search(rig: HangingRig, requests: int) -> "tuple[list[asyncio.Task[ErrorCode]], list[Any]]":
    """Send requests that wait for the remote coordinator, and return their tasks and the waiting requests to it."""
    waiting: list[asyncio.Future[None]] = []
    rig.remote.waiting = waiting
    tasks = [asyncio.create_task(rig.abort_or_refusal()) for _ in range(requests)]
    async with asyncio.timeout(10):
        while len(waiting) < requests:
            await asyncio.sleep(0)
    return tasks, waiting


async def test_abort_is_refused_if_a_coordinator_moves_during_the_search(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    [task], [request] = await waiting_search(rig, 1)
    rig.leaders = [NODE, NODE, NODE]
    request.set_result(None)
    assert await task is E.COORDINATOR_NOT_AVAILABLE
    assert rig.is_open


async def test_next_transaction_of_the_producer_is_not_aborted_after_the_search(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    [task], [request] = await waiting_search(rig, 1)
    topics = (KEY,)
    marker = Marker(PRODUCER, EPOCH, 0, commit=True, partitions=topics, transaction_version=0)
    assert rig.services.markers.write([marker]).result() == [{KEY: E.NONE}]
    rig.open_transaction(sequence=1)
    request.set_result(None)
    assert await task is E.INVALID_TXN_STATE
    assert rig.is_open


async def test_requests_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    rig = HangingRig(tmp_path)
    topics = [WritableTxnMarkerTopic("t", list(range(PARTITIONS_MAX + 1)))]
    request = WriteTxnMarkersRequest([WritableTxnMarker(PRODUCER, EPOCH, False, topics, 0)])
    with pytest.raises(Refusal) as refusal:
        await write_txn_markers.handle(rig.context(27, 1), request)  # type: ignore[misc]  # a coroutine here
    assert refusal.value.error is E.INVALID_REQUEST
    tasks, waiting = await waiting_search(rig, SEARCHES_MAX)
    assert await rig.abort_or_refusal() is E.COORDINATOR_NOT_AVAILABLE
    for one in waiting:
        one.set_result(None)
    assert sorted(await asyncio.gather(*tasks)) == [E.NONE] + [E.INVALID_TXN_STATE] * (SEARCHES_MAX - 1)
    rig.open_transaction(sequence=1)
    rig.remote.waiting = None
    assert await rig.abort_or_refusal() is E.NONE
