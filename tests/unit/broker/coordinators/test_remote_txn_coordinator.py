"""Asking coordinators on behalf of produces: here, elsewhere, and while they move."""

import asyncio
from typing import Any

import pytest

from odradek.broker.coordinators.remote_txn_coordinator import Coordinators
from odradek.broker.quorum.peers import Channel
from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, Refusal
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

    def _called(self, what: str, transactional_id: str) -> Any:
        self.calls.append((what, transactional_id))
        future = asyncio.get_running_loop().create_future()
        future.set_result({T0: E.NONE})
        return future


class Peers:
    def __init__(self) -> None:
        self.asked: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.answers: list[asyncio.Future[Any]] = []

    def request(
        self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int
    ) -> "asyncio.Future[Any]":
        assert (channel, version, timeout_ms) == (Channel.VERIFICATION, 5, 5_000)
        self.asked.append((node_id, decode(AddPartitionsToTxnRequest, version, encode(request, version))))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def answer(self, errors: dict[TopicPartition, ErrorCode] | None = None, *, at: int = -1) -> None:
        """Say `errors` (NONE where it says nothing) to everything that was asked for."""
        results = [
            AddPartitionsToTxnResult(
                asked.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(
                                index, (errors or {}).get(TopicPartition(topic.name, index), E.NONE)
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in self.asked[at][1].transactions
        ]
        self.answers[at].set_result(AddPartitionsToTxnResponse(results_by_transaction=results))


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

    def lines(self, at: int = -1) -> list[tuple[str, int, int, bool, list[tuple[str, list[int]]]]]:
        return [line(asked) for asked in self.peers.asked[at][1].transactions]


def line(asked: AddPartitionsToTxnTransaction) -> tuple[str, int, int, bool, list[tuple[str, list[int]]]]:
    topics = [(topic.name, topic.partitions) for topic in asked.topics]
    return asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.verify_only, topics


async def refused(future: "asyncio.Future[Any]") -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        await future
    return refusal.value.error


async def test_the_coordinator_on_this_broker_is_called() -> None:
    rig = Rig()
    assert rig.add(ID_HERE, T0).result() == {T0: E.NONE}
    assert rig.verify(ID_HERE, T0).result() == {T0: E.NONE}
    assert rig.local.calls == [("add", ID_HERE), ("verify", ID_HERE)]
    assert rig.peers.asked == []


async def test_another_broker_is_asked_what_to_add_and_what_to_verify() -> None:
    rig = Rig()
    adding, verifying = rig.add(ID, T0, U0, T1), rig.verify(ID, T0)
    assert rig.lines() == [(ID, 7, 4, False, [("t", [0, 1]), ("u", [0])])]
    rig.peers.answer({T1: E.UNKNOWN_TOPIC_OR_PARTITION})
    assert await adding == {T0: E.NONE, T1: E.UNKNOWN_TOPIC_OR_PARTITION, U0: E.NONE}
    assert rig.lines() == [(ID, 7, 4, True, [("t", [0])])]
    rig.peers.answer({T0: E.TRANSACTION_ABORTABLE})
    assert await verifying == {T0: E.TRANSACTION_ABORTABLE}
    assert [node for node, _ in rig.peers.asked] == [THERE, THERE]


async def test_at_most_one_request_is_in_flight_per_broker() -> None:
    rig = Rig()
    first = rig.add(ID, T0)
    later = [rig.add(ID_2, T0), rig.add(ID_3, T1), rig.add(ID_2, U0)]
    assert len(rig.peers.asked) == 1
    rig.peers.answer()
    assert await first == {T0: E.NONE}
    assert rig.lines() == [(ID_2, 7, 4, False, [("t", [0]), ("u", [0])]), (ID_3, 7, 4, False, [("t", [1])])]
    rig.peers.answer({U0: E.INVALID_TXN_STATE})
    assert await later[0] == await later[2] == {T0: E.NONE, U0: E.INVALID_TXN_STATE}
    assert await later[1] == {T1: E.NONE}


async def test_a_queued_question_of_an_older_epoch_is_fenced_and_never_sent() -> None:
    rig = Rig()
    rig.add(ID, T0)
    old = rig.add(ID_2, T0, epoch=3)
    new = rig.add(ID_2, T1, epoch=4)
    assert await refused(old) is E.INVALID_PRODUCER_EPOCH
    with pytest.raises(Refusal) as refusal:
        rig.add(ID_2, T0, epoch=3)
    assert refusal.value.error is E.INVALID_PRODUCER_EPOCH
    rig.peers.answer()
    await asyncio.sleep(0)
    assert rig.lines() == [(ID_2, 7, 4, False, [("t", [1])])]
    rig.peers.answer()
    assert await new == {T1: E.NONE}


async def test_two_producers_that_claim_one_id_are_both_judged_by_the_coordinator() -> None:
    rig = Rig()
    rig.add(ID, T0)
    both = [rig.add(ID_2, T0, pid=8), rig.add(ID_2, T0, pid=9)]
    rig.peers.answer()
    await asyncio.sleep(0)
    assert [(name, pid) for name, pid, *_ in rig.lines()] == [(ID_2, 8), (ID_2, 9)]
    rig.peers.answer({T0: E.INVALID_PRODUCER_ID_MAPPING})
    assert [await each for each in both] == [{T0: E.INVALID_PRODUCER_ID_MAPPING}] * 2


async def test_a_lost_connection_is_told_and_the_queue_goes_on() -> None:
    rig = Rig()
    first, second = rig.add(ID, T0), rig.add(ID_2, T0)
    rig.peers.answers[0].set_exception(ConnectionError("gone"))
    assert await refused(first) is E.NETWORK_EXCEPTION
    assert [name for name, *_ in rig.lines()] == [ID_2]
    rig.peers.answer()
    assert await second == {T0: E.NONE}


async def test_nobody_waits_for_a_coordinator_that_is_one_no_longer() -> None:
    """The coordinator is paused: in flight and queued alike are told, and the next ones go to its successor."""
    rig = Rig()
    in_flight, queued = rig.add(ID, T0), rig.add(ID_2, T0)
    rig.move(THERE)
    await asyncio.sleep(0)
    assert not in_flight.done()
    rig.move(ELSEWHERE)
    assert await refused(in_flight) is E.NOT_COORDINATOR
    assert await refused(queued) is E.NOT_COORDINATOR
    again = rig.add(ID, T0)
    assert rig.peers.asked[-1][0] == ELSEWHERE
    rig.peers.answer()
    assert await again == {T0: E.NONE}
    rig.peers.answer(at=0)  # it wakes up
    await asyncio.sleep(0)
    assert len(rig.peers.asked) == 2


@pytest.mark.parametrize("leaders", [[], [HERE, -1]])
async def test_no_coordinator_is_said_at_once(leaders: list[int]) -> None:
    rig = Rig()
    rig.leaders = leaders
    with pytest.raises(Refusal) as refusal:
        rig.add(ID, T0)
    assert refusal.value.error is E.COORDINATOR_NOT_AVAILABLE


async def test_an_answer_that_refuses_everything_or_fits_nothing() -> None:
    rig = Rig()
    denied = rig.add(ID, T0)
    rig.peers.answers[-1].set_result(AddPartitionsToTxnResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED))
    assert await refused(denied) is E.CLUSTER_AUTHORIZATION_FAILED
    strange = rig.add(ID, T0)
    rig.peers.answers[-1].set_result(AddPartitionsToTxnResponse())
    assert await refused(strange) is E.NETWORK_EXCEPTION
    partial = rig.add(ID, T0)
    rig.peers.answers[-1].set_result(AddPartitionsToTxnResponse(0, 0, [AddPartitionsToTxnResult(ID, [])]))
    assert await partial == {T0: E.NETWORK_EXCEPTION}
