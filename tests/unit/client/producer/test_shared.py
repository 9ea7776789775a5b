"""SharedTransaction: fencing, offsets, commit and abort, and producers that write in the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    Cluster,
    CommittedOffset,
    Fenced,
    Producer,
    ProducerIdentity,
    ProducerRecord,
    Refused,
    SharedTransaction,
    TopicPartition,
)
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
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
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.support.fake_kafka import FakeKafka, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ID, GROUP = "id", "group"
IDENTITY = ProducerIdentity(ID, 7, 4)


def with_transaction(
    kafka: FakeKafka,
    scenario: Callable[[SharedTransaction, Cluster], Awaitable[None]],
    identity: ProducerIdentity | None,
) -> None:
    kafka.leaders["t"] = [1]
    kafka.coordinators |= {ID: 2, GROUP: 3}

    async def body() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            await scenario(SharedTransaction(cluster, ID, identity=identity), cluster)

    run(kafka, body())


def only(kafka: FakeKafka, kind: type[Any]) -> Any:
    (received,) = kafka.of(kind)
    return received.request


def test_first_begin_fences_any_producer_and_the_next_begin_does_not(kafka: FakeKafka) -> None:
    kafka.script(
        InitProducerIdRequest,
        InitProducerIdResponse(producer_id=7, producer_epoch=4),
        InitProducerIdResponse(producer_id=7, producer_epoch=5),
    )

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        assert await transaction.begin() == IDENTITY
        assert (await transaction.begin()).epoch == 5

    with_transaction(kafka, scenario, None)
    sent = [(each.request.producer_id, each.request.producer_epoch) for each in kafka.of(InitProducerIdRequest)]
    assert sent == [(-1, -1), (7, 4)]


def test_begin_after_a_newer_producer_is_fenced(kafka: FakeKafka) -> None:
    kafka.script(InitProducerIdRequest, InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED))

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        with pytest.raises(Fenced, match="transactional id id was not initialized"):
            await transaction.begin()

    with_transaction(kafka, scenario, IDENTITY)


def test_offsets_are_added_to_the_transaction_before_the_commit(kafka: FakeKafka) -> None:
    kafka.script(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
    row = TxnOffsetCommitResponsePartition(partition_index=0)
    kafka.script(
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="ledger", partitions=[row])]),
    )
    kafka.script(EndTxnRequest, EndTxnResponse())

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        await transaction.send_offsets(GROUP, {TopicPartition("ledger", 0): CommittedOffset(9, "{}")})
        await transaction.commit()

    with_transaction(kafka, scenario, IDENTITY)
    sent = only(kafka, TxnOffsetCommitRequest)
    assert (sent.transactional_id, sent.group_id, sent.producer_id, sent.producer_epoch) == (ID, GROUP, 7, 4)
    assert sent.topics[0].partitions[0].committed_offset == 9
    assert sent.topics[0].partitions[0].committed_metadata == "{}"
    assert only(kafka, AddOffsetsToTxnRequest).group_id == GROUP
    assert only(kafka, EndTxnRequest).committed


def test_refused_offset_is_raised(kafka: FakeKafka) -> None:
    kafka.script(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
    row = TxnOffsetCommitResponsePartition(error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE)
    kafka.script(
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="ledger", partitions=[row])]),
    )

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        with pytest.raises(Refused, match="OFFSET_METADATA_TOO_LARGE"):
            await transaction.send_offsets(GROUP, {TopicPartition("ledger", 0): CommittedOffset(9, "{}")})

    with_transaction(kafka, scenario, IDENTITY)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE])
def test_abort_without_an_open_transaction_has_no_effect(kafka: FakeKafka, code: ErrorCode) -> None:
    kafka.script(EndTxnRequest, EndTxnResponse(error_code=code))

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        await transaction.abort()

    with_transaction(kafka, scenario, IDENTITY)
    assert not only(kafka, EndTxnRequest).committed


def test_commit_without_an_open_transaction_is_refused(kafka: FakeKafka) -> None:
    kafka.script(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        with pytest.raises(Refused, match="the transaction was not committed: INVALID_TXN_STATE"):
            await transaction.commit()

    with_transaction(kafka, scenario, IDENTITY)


def test_producer_with_an_identity_writes_in_the_transaction_from_sequence_0(kafka: FakeKafka) -> None:
    result = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[AddPartitionsToTxnPartitionResult()])
    kafka.script(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[result]))
    written = TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(index=0, base_offset=3)])
    kafka.script(ProduceRequest, ProduceResponse(responses=[written]))

    async def scenario(transaction: SharedTransaction, cluster: Cluster) -> None:
        await Producer(cluster, identity=IDENTITY).send("t", [ProducerRecord(b"k", b"v")])

    with_transaction(kafka, scenario, IDENTITY)
    sent = only(kafka, ProduceRequest)
    header = read_header(bytes(sent.topic_data[0].partition_data[0].records))
    assert (sent.transactional_id, header.producer_id, header.producer_epoch, header.base_sequence) == (ID, 7, 4, 0)
    assert kafka.of(InitProducerIdRequest) == []
