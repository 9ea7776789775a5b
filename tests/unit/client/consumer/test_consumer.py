"""The consumer: start and end offsets, several leaders, and leaders that change or fail."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import LATEST, ClientError, Cluster, Consumer, IsolationLevel, NotFound, ProtocolError, Refused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from tests.support.batches import batch, marker
from tests.support.fake_kafka import FakeKafka, Fault, run
from tests.support.fake_partition_logs import TOPIC, Logs, three_records

if TYPE_CHECKING:
    from tests.support.fake_kafka import Step


def read(kafka: FakeKafka, **options: Any) -> list[tuple[int, int, bytes | None]]:
    """Read the topic to its end and return partition, offset and value of each record."""

    async def test() -> list[tuple[int, int, bytes | None]]:
        async with Cluster(kafka.bootstrap) as cluster:
            batches = Consumer(cluster, TOPIC, **options).batches()
            return [(record.partition, record.offset, record.value) async for records in batches for record in records]

    return run(kafka, test())


@pytest.mark.parametrize(
    ("start", "offsets"), [(-2, [0, 1, 2]), (0, [0, 1, 2]), (1, [1, 2]), (2, [2]), (99, []), (LATEST, [])]
)
def test_a_consumer_begins_at_its_start_and_ends_at_the_end(kafka: FakeKafka, start: int, offsets: list[int]) -> None:
    three_records(kafka)
    assert [offset for _, offset, _ in read(kafka, start=start)] == offsets


def test_a_partition_begins_at_its_own_start_or_at_the_beginning(kafka: FakeKafka) -> None:
    three_records(kafka)
    assert [offset for _, offset, _ in read(kafka, start={0: 2})] == [2]
    assert [offset for _, offset, _ in read(kafka, start={1: 2})] == [0, 1, 2]


def test_an_offset_before_the_log_start_is_limited_to_it(kafka: FakeKafka) -> None:
    logs = three_records(kafka)
    logs.first = 1
    assert [offset for _, offset, _ in read(kafka, start=0)] == [1, 2]


def test_records_behind_the_end_at_the_start_are_not_read(kafka: FakeKafka) -> None:
    Logs(kafka, {0: [batch(0, b"a", b"b"), batch(2, b"c")]}, {0: 1})
    assert [offset for _, offset, _ in read(kafka)] == [0]


def test_partitions_of_several_leaders_are_read_in_order(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [1, 2, 3]
    Logs(
        kafka,
        {index: [batch(number, b"%d" % number) for number in range(7)] for index in range(3)},
        dict.fromkeys(range(3), 7),
    )
    rows = read(kafka)
    assert len(rows) == 21
    for index in range(3):
        assert [offset for partition, offset, _ in rows if partition == index] == list(range(7))
    assert read_partitions(kafka) == {(1, 0), (2, 1), (3, 2)}


def read_partitions(kafka: FakeKafka) -> set[tuple[int, int]]:
    """Return broker and partition of all fetches."""
    return {
        (received.node_id, partition.partition)
        for received in kafka.of(FetchRequest)
        for topic in received.request.topics
        for partition in topic.partitions
    }


def test_only_the_given_partitions_are_read(kafka: FakeKafka) -> None:
    Logs(kafka, {0: [batch(0, b"a")], 1: [batch(0, b"b")]}, {0: 1, 1: 1})
    assert read(kafka, partitions=[1]) == [(1, 0, b"b")]


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        (IsolationLevel.READ_COMMITTED, [b"plain"]),
        (IsolationLevel.READ_UNCOMMITTED, [b"aborted", b"plain", b"open"]),
    ],
)
def test_the_isolation_level_decides_on_transactional_records(
    kafka: FakeKafka, isolation: IsolationLevel, expected: list[bytes]
) -> None:
    log = [
        batch(0, b"aborted", producer_id=1),
        marker(1, 1, commit=False),
        batch(2, b"plain"),
        batch(3, b"open", producer_id=2),
    ]
    aborted = [(0, 1)] if isolation == IsolationLevel.READ_COMMITTED else []
    Logs(kafka, {0: log}, {0: 4}, stable={0: 3}, aborted=aborted)
    assert [value for _, _, value in read(kafka, isolation=isolation)] == expected
    assert {received.request.isolation_level for received in kafka.of(FetchRequest)} == {isolation}


@pytest.mark.parametrize("fault", [Fault.DISCONNECT, Fault.SILENCE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_changes_or_fails_is_found_again(kafka: FakeKafka, fault: Fault | ErrorCode) -> None:
    logs = three_records(kafka)

    def move(request: FetchRequest) -> Step:
        kafka.leaders[TOPIC] = [3]
        return logs.fetch(request) if isinstance(fault, ErrorCode) else fault

    kafka.scripts[FetchRequest].appendleft(move)
    assert [value for _, _, value in read(kafka)] == [b"a", b"b", b"c"]
    assert [received.node_id for received in kafka.of(FetchRequest)][:2] == [1, 3]


def test_partition_without_a_leader_is_read_when_it_has_one(kafka: FakeKafka) -> None:
    three_records(kafka)
    leaders = kafka.leaders[TOPIC]
    kafka.leaders[TOPIC] = [-1]
    kafka.loop.call_later(2, kafka.leaders.update, {TOPIC: leaders})
    assert [value for _, _, value in read(kafka)] == [b"a", b"b", b"c"]


def test_a_partition_without_a_leader_fails_at_the_deadline(kafka: FakeKafka) -> None:
    logs = three_records(kafka)
    logs.codes[0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            batches = Consumer(cluster, TOPIC).batches()
            kafka.loop.call_later(0.05, kafka.leaders.update, {TOPIC: [-1]})
            with pytest.raises(Refused, match="reading t-0: LEADER_NOT_AVAILABLE") as raised:
                await anext(batches)
            assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE
            assert 25 < kafka.loop.time() < 35

    run(kafka, test())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, "reading t-0: OFFSET_OUT_OF_RANGE"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "AUTHORIZATION"),
    ],
)
def test_a_permanent_error_is_raised(kafka: FakeKafka, code: ErrorCode, message: str) -> None:
    logs = three_records(kafka)
    logs.codes[0] = [code]
    with pytest.raises(Refused, match=message):
        read(kafka)


def test_a_damaged_batch_names_its_place(kafka: FakeKafka) -> None:
    logs = three_records(kafka)
    logs.batches[0][1] = logs.batches[0][1][:-2] + b"\xff\x00"
    with pytest.raises(ProtocolError, match="t-0, at offset 2: batch at offset 2: the checksum"):
        read(kafka)


@pytest.mark.parametrize(
    ("leaders", "options", "error", "message"),
    [
        ({}, {}, NotFound, "topic t does not exist; list the topics with"),
        ({TOPIC: [1]}, {"partitions": [3]}, NotFound, "topic t has no partition 3; it has 1"),
        ({TOPIC: [-1]}, {}, Refused, "offset of t-0: LEADER_NOT_AVAILABLE; list partitions without a leader with"),
    ],
)
def test_what_cannot_be_read_is_refused(
    kafka: FakeKafka, leaders: dict[str, list[int]], options: dict[str, Any], error: type[ClientError], message: str
) -> None:
    kafka.leaders = leaders
    with pytest.raises(error, match=message):
        read(kafka, **options)


def test_a_following_consumer_reads_records_that_come_later_and_ends_when_it_is_closed(kafka: FakeKafka) -> None:
    logs = three_records(kafka)

    async def test() -> list[bytes | None]:
        values: list[bytes | None] = []
        async with (
            Cluster(kafka.bootstrap) as cluster,
            aclosing(Consumer(cluster, TOPIC, start=LATEST, follow=True).batches()) as batches,
        ):
            kafka.loop.call_later(0.01, logs.batches[0].append, batch(3, b"new"))
            async for records in batches:
                values += [record.value for record in records]
                break
        await asyncio.sleep(1)
        return values

    assert run(kafka, test()) == [b"new"]
    assert len(kafka.loop.tasks_of("world")) == 0
