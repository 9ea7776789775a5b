"""Removal of producers and transactional ids: what is sent, and brokers that do not support it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import (
    ClientError,
    Cluster,
    PartialResult,
    ProducerListing,
    Refused,
    TopicPartition,
    TransactionListing,
    expire_producers,
    expire_transactional_ids,
    list_producers,
    producers_by_partition,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import COUNT, EXPIRE_TAG, EXPIRED_ID, EXPIRED_PRODUCER
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def producer(number: int, *, open_transaction: bool = False) -> ProducerListing:
    return ProducerListing("t", 0, number, 1, 2, 3, open_transaction, None, None, None)


def producers_response(
    *states: ProducerState, error: ErrorCode = ErrorCode.NONE, tagged: tuple[tuple[int, bytes], ...] = ()
) -> DescribeProducersResponse:
    row = PartitionResponse(0, error, active_producers=list(states), unknown_tagged_fields=tagged)
    return DescribeProducersResponse(topics=[TopicResponse("t", [row])])


def test_listing_of_a_kafka_broker_has_no_client(kafka: FakeKafka) -> None:
    kafka.leaders["t"] = [2]
    kafka.script(DescribeProducersRequest, producers_response(ProducerState(producer_id=7, current_txn_start_offset=4)))

    async def test() -> Sequence[ProducerListing]:
        async with Cluster(kafka.bootstrap) as cluster:
            return (await list_producers(cluster, "t")).rows

    [row] = run(kafka, test())
    assert (row.producer_id, row.open_transaction) == (7, True)
    assert (row.client_id, row.address, row.idle_ms) == (None, None, None)


def test_leader_that_refuses_a_partition_counts_as_unreachable(kafka: FakeKafka) -> None:
    kafka.leaders["t"] = [2]
    kafka.script(DescribeProducersRequest, producers_response(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def test() -> PartialResult[ProducerListing]:
        async with Cluster(kafka.bootstrap) as cluster:
            return await list_producers(cluster, "t")

    assert run(kafka, test()) == PartialResult([], {2: "NOT_LEADER_OR_FOLLOWER"})


def test_producers_of_a_partition_are_requested_until_its_leader_responds(kafka: FakeKafka) -> None:
    kafka.leaders["t"] = [2, 2]
    state = ProducerState(producer_id=7, current_txn_start_offset=4)
    kafka.script(
        DescribeProducersRequest,
        Fault.DISCONNECT,
        producers_response(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        producers_response(state),
        producers_response(),
    )
    key = TopicPartition("t", 0)

    async def test() -> list[list[ProducerListing]]:
        async with Cluster(kafka.bootstrap) as cluster:
            return [(await producers_by_partition(cluster, [key]))[key] for _ in range(2)]

    [[row], none] = run(kafka, test())
    assert (row.producer_id, row.open_transaction, row.transaction_start, none) == (7, True, 4, [])
    assert [each.request.topics[0].partition_indexes for each in kafka.of(DescribeProducersRequest)] == [[0]] * 4


@pytest.mark.parametrize(
    ("leader", "error", "message"),
    [
        (-1, ErrorCode.NONE, "LEADER_NOT_AVAILABLE"),
        (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_producers_of_a_partition_without_a_response_are_an_error(
    kafka: FakeKafka, leader: int, error: ErrorCode, message: str
) -> None:
    kafka.leaders["t"] = [leader]
    kafka.script(DescribeProducersRequest, producers_response(error=error))

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            with pytest.raises(Refused, match=f"the producers of t-0 were not described: {message}"):
                await producers_by_partition(cluster, [TopicPartition("t", 0)])

    run(kafka, test())


def test_removal_of_producers_leaves_out_open_transactions_and_is_divided(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.client.admin.producers.EXPIRED_PER_REQUEST", 2)
    kafka.leaders["t"] = [2]
    kafka.script(
        DescribeProducersRequest,
        *(producers_response(tagged=((EXPIRE_TAG, COUNT.pack(count)),)) for count in (2, 0)),
    )
    listed = [producer(1), producer(2, open_transaction=True), producer(3), producer(4)]

    async def test() -> int:
        async with Cluster(kafka.bootstrap) as cluster:
            return await expire_producers(cluster, listed)

    assert run(kafka, test()) == 2
    sent = [
        [EXPIRED_PRODUCER.unpack_from(data, at) for at in range(0, len(data), EXPIRED_PRODUCER.size)]
        for received in kafka.of(DescribeProducersRequest)
        for data in [dict(received.request.topics[0].unknown_tagged_fields)[EXPIRE_TAG]]
    ]
    assert sent == [[(1, 1, 2), (3, 1, 2)], [(4, 1, 2)]]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_broker_that_cannot_remove_producers_is_an_error(kafka: FakeKafka, error: ErrorCode) -> None:
    kafka.leaders["t"] = [2]
    kafka.script(DescribeProducersRequest, producers_response(ProducerState(producer_id=1), error=error))

    async def test() -> int:
        async with Cluster(kafka.bootstrap) as cluster:
            return await expire_producers(cluster, [producer(1)])

    with pytest.raises(ClientError, match="not removed: CLUSTER" if error else "cannot remove producers"):
        run(kafka, test())


@pytest.mark.parametrize("supported", [True, False])
def test_removal_of_transactional_ids_reports_ids_that_stay(kafka: FakeKafka, supported: bool) -> None:
    listed = [
        TransactionListing(name, state, 5, 3, epoch)
        for name, state, epoch in (
            ("a", "Empty", 1),
            ("b", "CompleteAbort", 2),
            ("c", "Ongoing", 3),
            ("d", "Empty", None),
        )
    ]
    states = [
        TransactionState(transactional_id="a"),
        TransactionState(error_code=ErrorCode.PRODUCER_FENCED, transactional_id="b"),
    ]
    tagged = ((EXPIRE_TAG, b""),) if supported else ()
    kafka.script(
        DescribeTransactionsRequest,
        DescribeTransactionsResponse(transaction_states=states, unknown_tagged_fields=tagged),
    )

    async def test() -> dict[str, str]:
        async with Cluster(kafka.bootstrap) as cluster:
            return await expire_transactional_ids(cluster, listed)

    if not supported:
        with pytest.raises(ClientError, match="broker 3 cannot remove transactional ids"):
            run(kafka, test())
        return
    assert run(kafka, test()) == {
        "b": "PRODUCER_FENCED",
        "c": "its state is Ongoing",
        "d": "its coordinator did not describe it",
    }
    [received] = kafka.of(DescribeTransactionsRequest)
    assert (received.node_id, received.request.transactional_ids) == (3, ["a", "b"])
    data = dict(received.request.unknown_tagged_fields)[EXPIRE_TAG]
    assert data == EXPIRED_ID.pack(5, 1) + EXPIRED_ID.pack(5, 2)
