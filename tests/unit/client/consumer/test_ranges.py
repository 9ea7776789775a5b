"""Undecoded batches of a range of offsets: requests ahead, positions, ends, errors."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from odradek.client import Cluster, FetchedBatches, IsolationLevel, ProtocolError, Refused, TopicPartition, fetch_range
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from tests.support.batches import batch, marker
from tests.support.fake_kafka import FakeKafka, run
from tests.support.fake_partition_logs import TOPIC, Logs, three_records

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = TopicPartition(TOPIC, 0)


def fetched(
    kafka: FakeKafka, start: int, end: int, *, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> list[FetchedBatches]:
    async def test() -> list[FetchedBatches]:
        async with Cluster(kafka.bootstrap) as cluster:
            return [each async for each in fetch_range(cluster, KEY, start, end, isolation)]

    return run(kafka, test())


def positions(responses: Sequence[FetchedBatches]) -> list[tuple[int, int]]:
    return [(each.first, each.following) for each in responses]


def log_of(kafka: FakeKafka, count: int) -> Logs:
    """Make a log with one record per batch. A response has two batches."""
    return Logs(kafka, {0: [batch(offset, b"%d" % offset) for offset in range(count)]}, {0: count})


def test_range_is_fetched_once_and_in_order(kafka: FakeKafka) -> None:
    log_of(kafka, 7)
    assert positions(fetched(kafka, 1, 6)) == [(1, 3), (3, 5), (5, 7)]
    assert [each.request.topics[0].partitions[0].fetch_offset for each in kafka.of(FetchRequest)] == [1, 3, 5]


def test_start_within_a_batch_returns_the_whole_batch(kafka: FakeKafka) -> None:
    logs = three_records(kafka)
    assert positions(fetched(kafka, 1, 2)) == [(1, 3)]
    assert fetched(kafka, 1, 2)[0].data == b"".join(logs.batches[0])


def test_next_fetch_is_sent_before_a_response_is_processed(kafka: FakeKafka) -> None:
    log_of(kafka, 4)

    async def test() -> None:
        async with (
            Cluster(kafka.bootstrap) as cluster,
            aclosing(fetch_range(cluster, KEY, 0, 4, IsolationLevel.READ_UNCOMMITTED)) as responses,
        ):
            await anext(responses)
            received = kafka.loop.create_future()
            kafka.loop.call_later(0.1, received.set_result, None)
            await received
            assert [each.request.topics[0].partitions[0].fetch_offset for each in kafka.of(FetchRequest)] == [0, 2]

    run(kafka, test())


def test_aborted_transactions_are_listed(kafka: FakeKafka) -> None:
    log = [batch(0, b"aborted", producer_id=1), marker(1, 1, commit=False)]
    Logs(kafka, {0: log}, {0: 2}, aborted=[(0, 1)])
    [response] = fetched(kafka, 0, 2, isolation=IsolationLevel.READ_COMMITTED)
    assert response.aborted == ((0, 1),)


def test_offset_out_of_range_is_raised_with_its_code(kafka: FakeKafka) -> None:
    three_records(kafka).codes[0] = [ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(Refused) as raised:
        fetched(kafka, 0, 3)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_end_behind_the_log_returns_responses_without_batches(kafka: FakeKafka) -> None:
    log_of(kafka, 2)

    async def test() -> list[tuple[int, int]]:
        async with (
            Cluster(kafka.bootstrap) as cluster,
            aclosing(fetch_range(cluster, KEY, 0, 9, IsolationLevel.READ_UNCOMMITTED)) as responses,
        ):
            return positions([await anext(responses) for _ in range(3)])

    assert run(kafka, test()) == [(0, 2), (2, 2), (2, 2)]


@pytest.mark.parametrize("at", [8, 23])
def test_damaged_header_names_its_place(kafka: FakeKafka, at: int) -> None:
    """A negative length or last offset delta must not move the position back."""
    logs = log_of(kafka, 2)
    logs.batches[0][1] = logs.batches[0][1][:at] + b"\xff" + logs.batches[0][1][at + 1 :]
    with pytest.raises(ProtocolError, match="t-0, at offset 1: the header of a batch is damaged"):
        fetched(kafka, 0, 2)
