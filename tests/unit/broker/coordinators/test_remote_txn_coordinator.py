"""Verification and addition of partitions by the coordinator: on this broker, on another one, and during its move."""

import asyncio
from typing import Any

import pytest

from odradek.broker.coordinators.remote_txn_coordinator import Coordinators
from odradek.broker.quorum.peers import Channel
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

E = ErrorCode
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HERE, THERE, ELSEWHERE = 1, 2, 3
COUNT = 2
ID_HERE = next(name for name in "abcdefgh" if partition_for(name, COUNT) == 0)
ID, ID_2, ID_3 = [name for name in "abcdefghijkl" if partition_for(name, COUNT) == 1][:3]


class Local:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def verify_partitions(self, transactional_id: str, *_: Any) -> Any:
        return self._called("verify", transactional_id)

    def add_partitions_for_produce(self, transactional_id: str, *_: Any) -> Any:
        return self._called("add", transactional_id)

    def _called(self, operation: str, transactional_id: str) -> Any:
        self.calls.append((operation, transactional_id))
        future = asyncio.get_running_loop().create_future()
        future.set_result({T0: E.NONE})
        return future


class Peers:
    def __init__(self) -> None:
        self.requests: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.futures: list[asyncio.Future[Any]] = []

    def request(
        self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int
    ) -> "asyncio.Future[Any]":
        assert (channel, version, timeout_ms) == (Channel.VERIFICATION, 5, 5_000)
        self.requests.append((node_id, decode(AddPartitionsToTxnRequest, version, encode(request, version))))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def respond(self, errors: dict[TopicPartition, ErrorCode] | None = None, *, index: int = -1) -> None:
        """Complete the request at `index` with `errors`, and NONE for each partition without an error there."""
        results = [
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(
                                partition, (errors or {}).get(TopicPartition(topic.name, partition), E.NONE)
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in self.requests[index][1].transactions
        ]
        self.futures[index].set_result(AddPartitionsToTxnResponse(results_by_transaction=results))


class Rig:
    def __init__(self) -> None:
        self.local, self.peers = Local(), Peers()
        self.leaders = [HERE, THERE]
        peers: Any = self.peers
        self.coordinators = Coordinators(HERE, self.local, peers, lambda: self.leaders, timeout_ms=30_000)

    def add(self, name: str, *partitions: TopicPartition, epoch: int = 4, pid: int = 7) -> "asyncio.Future[Any]":
        return self.coordinators.add_partitions_for_produce(name, pid, epoch, partitions)

    def verify(self, name: str, *partitions: TopicPartition) -> "asyncio.Future[Any]":
        return self.coordinators.verify_partitions(name, 7, 4, partitions)

    def move(self, leader: int) -> None:
        self.leaders = [HERE, leader]
        self.coordinators.leaders_changed()

    def sent(self, index: int = -1) -> list[tuple[str, int, int, bool, list[tuple[str, list[int]]]]]:
        return [fields(transaction) for transaction in self.peers.requests[index][1].transactions]


def fields(transaction: AddPartitionsToTxnTransaction) -> tuple[str, int, int, bool, list[tuple[str, list[int]]]]:
    topics = [(topic.name, topic.partitions) for topic in transaction.topics]
    key = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    return *key, transaction.verify_only, topics


async def refusal_of(future: "asyncio.Future[Any]") -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        await future
    return refusal.value.error


async def test_coordinator_on_this_broker_is_called_directly() -> None:
    rig = Rig()
    assert rig.add(ID_HERE, T0).result() == {T0: E.NONE}
    assert rig.verify(ID_HERE, T0).result() == {T0: E.NONE}
    assert rig.local.calls == [("add", ID_HERE), ("verify", ID_HERE)]
    assert rig.peers.requests == []


async def test_coordinator_on_another_broker_gets_add_and_verify_requests() -> None:
    rig = Rig()
    adding, verifying = rig.add(ID, T0, U0, T1), rig.verify(ID, T0)
    assert rig.sent() == [(ID, 7, 4, False, [("t", [0, 1]), ("u", [0])])]
    rig.peers.respond({T1: E.UNKNOWN_TOPIC_OR_PARTITION})
    assert await adding == {T0: E.NONE, T1: E.UNKNOWN_TOPIC_OR_PARTITION, U0: E.NONE}
    assert rig.sent() == [(ID, 7, 4, True, [("t", [0])])]
    rig.peers.respond({T0: E.TRANSACTION_ABORTABLE})
    assert await verifying == {T0: E.TRANSACTION_ABORTABLE}
    assert [node for node, _ in rig.peers.requests] == [THERE, THERE]


async def test_at_most_one_request_is_in_flight_per_broker() -> None:
    rig = Rig()
    first = rig.add(ID, T0)
    later = [rig.add(ID_2, T0), rig.add(ID_3, T1), rig.add(ID_2, U0)]
    assert len(rig.peers.requests) == 1
    rig.peers.respond()
    assert await first == {T0: E.NONE}
    assert rig.sent() == [(ID_2, 7, 4, False, [("t", [0]), ("u", [0])]), (ID_3, 7, 4, False, [("t", [1])])]
    rig.peers.respond({U0: E.INVALID_TXN_STATE})
    assert await later[0] == await later[2] == {T0: E.NONE, U0: E.INVALID_TXN_STATE}
    assert await later[1] == {T1: E.NONE}


async def test_queued_request_of_an_older_epoch_is_fenced_and_not_sent() -> None:
    rig = Rig()
    rig.add(ID, T0)
    old = rig.add(ID_2, T0, epoch=3)
    new = rig.add(ID_2, T1, epoch=4)
    assert await refusal_of(old) is E.INVALID_PRODUCER_EPOCH
    with pytest.raises(Refusal) as refusal:
        rig.add(ID_2, T0, epoch=3)
    assert refusal.value.error is E.INVALID_PRODUCER_EPOCH
    rig.peers.respond()
    await asyncio.sleep(0)
    assert rig.sent() == [(ID_2, 7, 4, False, [("t", [1])])]
    rig.peers.respond()
    assert await new == {T1: E.NONE}


async def test_two_producers_with_one_transactional_id_are_both_sent_to_the_coordinator() -> None:
    rig = Rig()
    rig.add(ID, T0)
    both = [rig.add(ID_2, T0, pid=8), rig.add(ID_2, T0, pid=9)]
    rig.peers.respond()
    await asyncio.sleep(0)
    assert [(name, pid) for name, pid, *_ in rig.sent()] == [(ID_2, 8), (ID_2, 9)]
    rig.peers.respond({T0: E.INVALID_PRODUCER_ID_MAPPING})
    assert [await future for future in both] == [{T0: E.INVALID_PRODUCER_ID_MAPPING}] * 2


async def test_lost_connection_fails_its_request_and_the_queue_continues() -> None:
    rig = Rig()
    first, second = rig.add(ID, T0), rig.add(ID_2, T0)
    rig.peers.futures[0].set_exception(ConnectionError("gone"))
    assert await refusal_of(first) is E.NETWORK_EXCEPTION
    assert [name for name, *_ in rig.sent()] == [ID_2]
    rig.peers.respond()
    assert await second == {T0: E.NONE}


async def test_change_of_the_coordinator_fails_requests_in_flight_and_queued() -> None:
    """The former coordinator is paused. Requests in flight and queued fail, and later requests go to its successor."""
    rig = Rig()
    in_flight, queued = rig.add(ID, T0), rig.add(ID_2, T0)
    rig.move(THERE)
    await asyncio.sleep(0)
    assert not in_flight.done()
    rig.move(ELSEWHERE)
    assert await refusal_of(in_flight) is E.NOT_COORDINATOR
    assert await refusal_of(queued) is E.NOT_COORDINATOR
    retried = rig.add(ID, T0)
    assert rig.peers.requests[-1][0] == ELSEWHERE
    rig.peers.respond()
    assert await retried == {T0: E.NONE}
    rig.peers.respond(index=0)  # the former coordinator continues
    await asyncio.sleep(0)
    assert len(rig.peers.requests) == 2


@pytest.mark.parametrize("leaders", [[], [HERE, -1]])
async def test_without_a_coordinator_requests_are_refused_immediately(leaders: list[int]) -> None:
    rig = Rig()
    rig.leaders = leaders
    with pytest.raises(Refusal) as refusal:
        rig.add(ID, T0)
    assert refusal.value.error is E.COORDINATOR_NOT_AVAILABLE


async def test_response_with_an_error_or_without_the_partitions_fails_the_request() -> None:
    rig = Rig()
    denied = rig.add(ID, T0)
    rig.peers.futures[-1].set_result(AddPartitionsToTxnResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED))
    assert await refusal_of(denied) is E.CLUSTER_AUTHORIZATION_FAILED
    empty = rig.add(ID, T0)
    rig.peers.futures[-1].set_result(AddPartitionsToTxnResponse())
    assert await refusal_of(empty) is E.NETWORK_EXCEPTION
    partial = rig.add(ID, T0)
    rig.peers.futures[-1].set_result(AddPartitionsToTxnResponse(0, 0, [AddPartitionsToTxnResult(ID, [])]))
    assert await partial == {T0: E.NETWORK_EXCEPTION}
