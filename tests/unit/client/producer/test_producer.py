"""Producer: retries with equal sequence numbers, transactions, and its states after failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    ClientError,
    Cluster,
    Fenced,
    InvalidState,
    NotFound,
    Producer,
    ProducerRecord,
    Refused,
    RequestTimedOut,
)
from odradek.client.producer.producer import State
from odradek.client.producer.records import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, batches_of
from odradek.protocol.batch import iter_records, read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.batch import BatchHeader
    from tests.support.fake_kafka import Step

TOPIC, ID = "t", "id"
RECORD = ProducerRecord(b"k", b"v", partition=0)


def acknowledged(offset: int = 0, code: ErrorCode = ErrorCode.NONE) -> Callable[[ProduceRequest], ProduceResponse]:
    def respond(request: ProduceRequest) -> ProduceResponse:
        data = request.topic_data[0]
        partition = PartitionProduceResponse(
            index=data.partition_data[0].index, error_code=code, base_offset=-1 if code else offset
        )
        return ProduceResponse(responses=[TopicProduceResponse(name=data.name, partition_responses=[partition])])

    return respond


def identity(epoch: int = 0, code: ErrorCode = ErrorCode.NONE) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)


def added(code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=[result])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def produce_requests(kafka: FakeKafka) -> list[tuple[int, int, BatchHeader]]:
    """Return the broker, the partition and the batch header of each produce request."""
    rows = []
    for received in kafka.of(ProduceRequest):
        data = received.request.topic_data[0].partition_data[0]
        rows.append((received.node_id, data.index, read_header(bytes(data.records))))
    return rows


async def transaction(producer: Producer, *, commit: bool = True) -> None:
    await producer.begin()
    await producer.send(TOPIC, [RECORD])
    await (producer.commit() if commit else producer.abort())


def with_producer(kafka: FakeKafka, test: Callable[[Producer], Any], transactional_id: str | None = None) -> Any:
    kafka.leaders.setdefault(TOPIC, [1, 2, 3])

    async def opened() -> Any:
        async with Cluster(kafka.bootstrap) as cluster:
            return await test(Producer(cluster, transactional_id, clock_ms=lambda: 1_234))

    return run(kafka, opened())


def test_records_are_written_to_the_leaders_of_their_partitions(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(ProduceRequest, *[acknowledged(offset) for offset in (10, 20, 30)])
    records = [ProducerRecord(None, b"%d" % number, partition=number % 3) for number in range(6)]
    written = with_producer(kafka, lambda producer: producer.send(TOPIC, records))
    assert sorted((report.partition, report.records) for report in written) == [(0, 2), (1, 2), (2, 2)]
    assert sorted(report.base_offset for report in written) == [10, 20, 30]
    assert sorted((node_id, index) for node_id, index, _ in produce_requests(kafka)) == [(1, 0), (2, 1), (3, 2)]
    batch = bytes(kafka.of(ProduceRequest)[0].request.topic_data[0].partition_data[0].records)
    assert [record.timestamp for record in iter_records(batch, max_decompressed_bytes=1)] == [1_234, 1_234]


def test_records_without_key_and_partition_go_to_the_partitions_in_turn(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(ProduceRequest, *[acknowledged()] * 3)
    with_producer(kafka, lambda producer: producer.send(TOPIC, [ProducerRecord(None, b"v")] * 6))
    assert sorted((index, header.record_count) for _, index, header in produce_requests(kafka)) == [
        (0, 2),
        (1, 2),
        (2, 2),
    ]


@pytest.mark.parametrize(
    "fault",
    [
        acknowledged(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        acknowledged(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        Fault.DISCONNECT,
        Fault.SILENCE,
    ],
)
def test_a_batch_is_sent_again_to_the_new_leader_with_its_sequence_numbers(kafka: FakeKafka, fault: Step) -> None:
    def move(request: ProduceRequest) -> Step:
        kafka.leaders[TOPIC] = [3, 2, 3]
        return fault(request) if callable(fault) else fault

    kafka.script(InitProducerIdRequest, identity())
    kafka.script(ProduceRequest, acknowledged(), move, acknowledged(5))

    async def test(producer: Producer) -> list[int]:
        rows = [*await producer.send(TOPIC, [RECORD]), *await producer.send(TOPIC, [RECORD, RECORD])]
        return [row.base_offset for row in rows]

    assert with_producer(kafka, test) == [0, 5]
    headers = [header for _, _, header in produce_requests(kafka)]
    assert [node_id for node_id, _, _ in produce_requests(kafka)] == [1, 1, 3]
    assert [(header.producer_id, header.base_sequence, header.record_count) for header in headers] == [
        (7, 0, 1),
        (7, 1, 2),
        (7, 1, 2),
    ]


def test_a_partition_without_a_leader_is_retried_until_it_has_one(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [-1]
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(ProduceRequest, acknowledged(3))

    async def test(producer: Producer) -> int:
        kafka.loop.call_later(10, kafka.leaders.update, {TOPIC: [2]})
        return (await producer.send(TOPIC, [RECORD]))[0].base_offset

    assert with_producer(kafka, test) == 3
    assert 10 < kafka.loop.time() < 12


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (acknowledged(code=ErrorCode.MESSAGE_TOO_LARGE), Refused),
        (acknowledged(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), Refused),
        (acknowledged(code=ErrorCode.NOT_ENOUGH_REPLICAS), Refused),
        (Fault.SILENCE, RequestTimedOut),
    ],
)
def test_after_a_failure_the_next_send_begins_with_a_new_producer_id(
    kafka: FakeKafka, step: Step, error: type[ClientError]
) -> None:
    """Records of the failed batch may have been written: their sequence numbers can be neither reused nor skipped."""
    kafka.script(InitProducerIdRequest, identity(), identity(1))
    kafka.script(ProduceRequest, *[step] * 60)

    async def test(producer: Producer) -> None:
        with pytest.raises(error) as raised:
            await producer.send(TOPIC, [RECORD])
        assert str(raised.value).startswith("t-0 was not written: ") or error is RequestTimedOut
        assert producer.state is State.NEW
        kafka.scripts[ProduceRequest].clear()
        kafka.script(ProduceRequest, acknowledged())
        await producer.send(TOPIC, [RECORD])

    with_producer(kafka, test)
    *_, last = produce_requests(kafka)
    assert (last[2].producer_epoch, last[2].base_sequence) == (1, 0)


def test_batch_that_is_too_large_for_the_topic_is_divided_until_it_fits(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())
    large = acknowledged(code=ErrorCode.MESSAGE_TOO_LARGE)
    kafka.script(ProduceRequest, large, large, *[acknowledged(offset) for offset in (10, 11, 12, 14)])
    records = [ProducerRecord(None, b"%d" % number, partition=0) for number in range(4)]

    async def test(producer: Producer) -> list[tuple[int, int]]:
        written = await producer.send(TOPIC, records)
        written += await producer.send(TOPIC, records[:1])
        return [(report.base_offset, report.records) for report in written]

    assert with_producer(kafka, test) == [(10, 1), (11, 1), (12, 2), (14, 1)]
    sent = [(header.base_sequence, header.record_count) for _, _, header in produce_requests(kafka)]
    assert sent == [(0, 4), (0, 2), (0, 1), (1, 1), (2, 2), (4, 1)]


def test_batches_of_concurrent_sends_have_consecutive_sequence_numbers(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(ProduceRequest, acknowledged(0), acknowledged(1), acknowledged(2))

    async def test(producer: Producer) -> None:
        await producer.send(TOPIC, [RECORD])
        await asyncio.gather(producer.send(TOPIC, [RECORD]), producer.send(TOPIC, [RECORD]))

    with_producer(kafka, test)
    assert sorted(header.base_sequence for _, _, header in produce_requests(kafka)) == [0, 1, 2]


def test_a_topic_or_partition_that_does_not_exist_is_not_found(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())

    async def test(producer: Producer) -> None:
        with pytest.raises(NotFound, match="topic none does not exist"):
            await producer.send("none", [RECORD])
        with pytest.raises(NotFound, match="topic t has no partition 9; it has 3"):
            await producer.send(TOPIC, [ProducerRecord(None, b"v", partition=9)])
        assert producer.state is State.READY

    with_producer(kafka, test)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_adds_its_partitions_once_and_ends(kafka: FakeKafka, commit: bool) -> None:
    kafka.coordinators[ID] = 2
    kafka.script(InitProducerIdRequest, identity(4))
    kafka.script(AddPartitionsToTxnRequest, added(ErrorCode.CONCURRENT_TRANSACTIONS), added(), added())
    kafka.script(ProduceRequest, *[acknowledged()] * 3)
    kafka.script(
        EndTxnRequest, EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), *[EndTxnResponse()] * 2
    )

    async def test(producer: Producer) -> None:
        await producer.begin()
        await producer.send(TOPIC, [RECORD])
        await producer.send(TOPIC, [RECORD])
        await (producer.commit() if commit else producer.abort())
        await transaction(producer, commit=commit)

    with_producer(kafka, test, ID)
    headers = [header for _, _, header in produce_requests(kafka)]
    assert [(header.is_transactional, header.producer_epoch, header.base_sequence) for header in headers] == [
        (True, 4, 0),
        (True, 4, 1),
        (True, 4, 2),
    ]
    assert len(kafka.of(AddPartitionsToTxnRequest)) == 3, "one was retried"
    assert {received.node_id for received in kafka.of(EndTxnRequest)} == {2}
    assert [received.request.committed for received in kafka.of(EndTxnRequest)] == [commit] * 3
    assert len(kafka.of(InitProducerIdRequest)) == 1


def test_a_transaction_without_records_needs_no_request_to_end(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())

    async def test(producer: Producer) -> None:
        await producer.begin()
        await producer.commit()
        assert producer.state is State.READY

    with_producer(kafka, test, ID)
    assert kafka.of(EndTxnRequest) == []


def test_after_a_failed_send_a_transaction_can_only_be_aborted(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity(), identity(1))
    kafka.script(AddPartitionsToTxnRequest, added(), added())
    kafka.script(ProduceRequest, acknowledged(code=ErrorCode.INVALID_RECORD), acknowledged())
    kafka.script(EndTxnRequest, EndTxnResponse(), EndTxnResponse())

    async def test(producer: Producer) -> None:
        await producer.begin()
        with pytest.raises(Refused, match="INVALID_RECORD"):
            await producer.send(TOPIC, [RECORD])
        with pytest.raises(
            InvalidState, match="cannot commit: the producer is in a transaction that can only be aborted"
        ):
            await producer.commit()
        with pytest.raises(InvalidState, match="cannot send in a transaction"):
            await producer.send(TOPIC, [RECORD])
        assert producer.in_transaction
        await producer.abort()
        assert producer.state is State.NEW
        await transaction(producer)

    with_producer(kafka, test, ID)
    *_, last = produce_requests(kafka)
    assert (last[2].producer_epoch, last[2].base_sequence) == (1, 0)


def test_a_cancelled_send_can_only_be_aborted(kafka: FakeKafka) -> None:
    kafka.coordinators[ID] = 2
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(AddPartitionsToTxnRequest, added())
    kafka.script(ProduceRequest, Fault.SILENCE)
    kafka.script(EndTxnRequest, EndTxnResponse())

    async def test(producer: Producer) -> None:
        await producer.begin()
        sending = asyncio.create_task(producer.send(TOPIC, [RECORD]))
        await asyncio.sleep(1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert producer.state is State.FAILED
        await producer.abort()

    with_producer(kafka, test, ID)
    assert [received.request.committed for received in kafka.of(EndTxnRequest)] == [False]


@pytest.mark.parametrize("operation", ["add", "send", "commit"])
def test_a_fenced_producer_cannot_be_used_again(kafka: FakeKafka, operation: str) -> None:
    code = dict.fromkeys(("add", "send", "commit"), ErrorCode.NONE) | {operation: ErrorCode.PRODUCER_FENCED}
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(AddPartitionsToTxnRequest, added(code["add"]))
    kafka.script(ProduceRequest, acknowledged(code=code["send"]))
    kafka.script(EndTxnRequest, EndTxnResponse(error_code=code["commit"]))

    async def test(producer: Producer) -> None:
        with pytest.raises(Fenced):
            await transaction(producer)
        assert not producer.in_transaction
        for call in (producer.begin, producer.commit, producer.abort):
            with pytest.raises(Fenced, match="a newer producer has the transactional id id"):
                await call()

    with_producer(kafka, test, ID)


def test_a_commit_whose_response_is_lost_is_repeated(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, identity())
    kafka.script(AddPartitionsToTxnRequest, added())
    kafka.script(ProduceRequest, acknowledged())
    kafka.script(EndTxnRequest, Fault.DISCONNECT, EndTxnResponse())
    with_producer(kafka, transaction, ID)
    assert [received.request.committed for received in kafka.of(EndTxnRequest)] == [True, True]


@pytest.mark.parametrize("operation", ["commit", "abort", "send"])
def test_operations_of_a_transaction_need_one(kafka: FakeKafka, operation: str) -> None:
    async def test(producer: Producer) -> None:
        with pytest.raises(InvalidState, match="the producer is without a producer id"):
            await (producer.send(TOPIC, [RECORD]) if operation == "send" else getattr(producer, operation)())

    with_producer(kafka, test, ID)
    assert kafka.received[-1].request.__class__.__name__ == "MetadataRequest", "nothing was sent"


def test_a_transaction_needs_a_transactional_id(kafka: FakeKafka) -> None:
    async def test(producer: Producer) -> None:
        with pytest.raises(InvalidState, match="the producer has no transactional id"):
            await producer.begin()

    with_producer(kafka, test)


def test_batches_are_bounded_in_records_and_bytes() -> None:
    small, large = ProducerRecord(None, b""), ProducerRecord(None, bytes(BATCH_BYTES_MAX))
    assert [len(batch) for batch in batches_of([small] * (BATCH_RECORDS_MAX + 1))] == [BATCH_RECORDS_MAX, 1]
    assert [len(batch) for batch in batches_of([large, large, small])] == [1, 1, 1]
    assert [len(batch) for batch in batches_of([small, large, large])] == [2, 1]
    half = ProducerRecord(None, bytes(BATCH_BYTES_MAX // 2 + 1))
    assert [len(batch) for batch in batches_of([half, half, small])] == [1, 2]
    headers = ProducerRecord(None, b"", (("h", bytes(BATCH_BYTES_MAX // 2)),))
    assert [len(batch) for batch in batches_of([headers, headers, small])] == [1, 2]
    assert list(batches_of([])) == []
