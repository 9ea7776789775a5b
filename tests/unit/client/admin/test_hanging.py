"""Transactions that hold back a last stable offset, and their state at the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import (
    ClientError,
    Cluster,
    HolderState,
    NotFound,
    Refused,
    TopicPartition,
    abort_hanging_transaction,
    blocked_partitions,
)
from odradek.commands.rows import blocked_row
from odradek.commands.txns import BLOCKING
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import DESCRIBED_ADDRESS_TAG, DESCRIBED_CLIENT_ID_TAG
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
    TopicData,
    TransactionState,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.messages.list_transactions import TransactionState as ListedState
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from odradek.client import BlockedPartition, PartialResult
    from odradek.commands.rows import Row

TOPIC, ID, PRODUCER_ID = "t", "id", 7
STABLE, HIGH = 3, 9


@pytest.fixture
def kafka_with_open_transaction(kafka: FakeKafka) -> FakeKafka:
    """Return brokers with a partition on broker 2, which has an open transaction from offset 3 on."""
    kafka.leaders[TOPIC] = [2]
    kafka.script(ListOffsetsRequest, *[offsets] * 2)
    kafka.script(DescribeProducersRequest, *[producers()] * 2)
    return kafka


def producers(first_offset: int = STABLE) -> DescribeProducersResponse:
    """Return the producers of the partition: one has an open transaction from `first_offset` on."""
    state = ProducerState(
        producer_id=PRODUCER_ID,
        producer_epoch=1,
        coordinator_epoch=-1,
        current_txn_start_offset=first_offset,
        last_timestamp=5,
        unknown_tagged_fields=((DESCRIBED_CLIENT_ID_TAG, b"app"), (DESCRIBED_ADDRESS_TAG, b"192.0.2.1")),
    )
    completed = ProducerState(producer_id=8, current_txn_start_offset=-1)
    row = PartitionResponse(partition_index=0, active_producers=[completed, state])
    return DescribeProducersResponse(topics=[TopicResponse(name=TOPIC, partitions=[row])])


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    offset = STABLE if request.isolation_level else HIGH
    row = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])


def coordinate(
    kafka: FakeKafka,
    state: str | None,
    *,
    partition: int = 0,
    timeout_ms: int = 60_000,
    unknown: ErrorCode = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
) -> None:
    """Let broker 3 coordinate the transaction in `state`. If it is None, no coordinator knows the transaction.

    Brokers respond with `unknown` to other transactional ids.
    """

    def listed(_: ListTransactionsRequest) -> ListTransactionsResponse:
        if state is None or kafka.received[-1].node_id != 3:
            return ListTransactionsResponse()
        return ListTransactionsResponse(transaction_states=[ListedState(ID, PRODUCER_ID, state)])

    described = TransactionState(
        transactional_id=ID,
        transaction_state=state or "",
        producer_id=PRODUCER_ID,
        transaction_start_time_ms=5,
        transaction_timeout_ms=timeout_ms,
        topics=[TopicData(TOPIC, [partition])],
        unknown_tagged_fields=((DESCRIBED_CLIENT_ID_TAG, b"app"),),
    )

    def describe(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        [name] = request.transactional_ids
        found = described if name == ID else TransactionState(transactional_id=name, error_code=unknown)
        return DescribeTransactionsResponse(transaction_states=[found])

    kafka.script(ListTransactionsRequest, *[listed] * 3)
    kafka.script(DescribeTransactionsRequest, *[describe] * 2)


def blocked(kafka: FakeKafka) -> PartialResult[BlockedPartition]:
    async def test() -> PartialResult[BlockedPartition]:
        async with Cluster(kafka.bootstrap) as cluster:
            return await blocked_partitions(cluster)

    return run(kafka, test())


def printed(row: BlockedPartition) -> Row:
    """Return the row that `odradek txns blocking` prints."""
    return BLOCKING.row(blocked_row(row))


@pytest.mark.parametrize(
    ("state", "timeout_ms", "expected"),
    [
        ("Ongoing", 60_000, HolderState.OPEN),
        ("Ongoing", NEVER_TIMES_OUT_MS, HolderState.IN_DOUBT),
        ("PrepareCommit", NEVER_TIMES_OUT_MS, HolderState.COMPLETING),
        ("PrepareAbort", 60_000, HolderState.COMPLETING),
    ],
)
def test_a_transaction_that_its_coordinator_knows_is_open_or_completing(
    kafka_with_open_transaction: FakeKafka, state: str, timeout_ms: int, expected: HolderState
) -> None:
    coordinate(kafka_with_open_transaction, state, timeout_ms=timeout_ms)
    [row] = blocked(kafka_with_open_transaction).rows
    assert (row.topic, row.partition, row.last_stable_offset, row.high_watermark) == (TOPIC, 0, STABLE, HIGH)
    assert row.state is expected
    assert row.producer is not None
    assert row.producer.producer_id == PRODUCER_ID
    assert row.transaction is not None
    assert (row.transaction.transactional_id, row.transaction.client_id, row.transaction.coordinator) == (ID, "app", 3)
    assert row.transaction.partitions == [TopicPartition(TOPIC, 0)]
    shown = printed(row)
    assert (shown["condition"], shown["client_id"]) == (expected.value, "app")
    assert (shown["times_out"] == "never") is (timeout_ms == NEVER_TIMES_OUT_MS)


@pytest.mark.parametrize("state", [None, "Ongoing"])
def test_a_transaction_that_no_coordinator_knows_in_this_partition_is_hanging(
    kafka_with_open_transaction: FakeKafka, state: str | None
) -> None:
    coordinate(kafka_with_open_transaction, state, partition=1)
    [row] = blocked(kafka_with_open_transaction).rows
    assert (row.state, row.transaction) == (HolderState.HANGING, None)
    assert row.producer is not None
    assert (row.producer.client_id, row.producer.address) == ("app", "192.0.2.1")
    shown = printed(row)
    assert (shown["condition"], shown["client_id"], shown["client_host"]) == ("hanging", "app", "192.0.2.1")


def test_the_state_is_unknown_if_brokers_may_hide_transactional_ids(kafka_with_open_transaction: FakeKafka) -> None:
    coordinate(kafka_with_open_transaction, None, unknown=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    result = blocked(kafka_with_open_transaction)
    assert ([row.state for row in result.rows], result.unreachable) == ([HolderState.UNKNOWN], {})


def test_no_marker_is_written_if_brokers_may_hide_transactional_ids(kafka_with_open_transaction: FakeKafka) -> None:
    coordinate(kafka_with_open_transaction, None, unknown=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(Refused, match="may not describe all transactional ids, so the transaction may not be hanging"):
        abort(kafka_with_open_transaction)
    assert kafka_with_open_transaction.of(WriteTxnMarkersRequest) == []


def test_producers_of_partitions_that_are_not_held_back_are_not_requested(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [2]
    row = ListOffsetsPartitionResponse(partition_index=0, offset=HIGH)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])
    kafka.script(ListOffsetsRequest, response, response)
    coordinate(kafka, None)
    assert blocked(kafka).rows == []
    assert kafka.of(DescribeProducersRequest) == []


@pytest.mark.parametrize("step", [Fault.DISCONNECT, ListTransactionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)])
def test_without_all_coordinators_the_state_is_unknown(
    kafka_with_open_transaction: FakeKafka, step: Fault | ListTransactionsResponse
) -> None:
    step = (
        step if isinstance(step, Fault) else ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    )
    kafka_with_open_transaction.script(ListTransactionsRequest, step, *[ListTransactionsResponse()] * 2)
    result = blocked(kafka_with_open_transaction)
    assert [row.state for row in result.rows] == [HolderState.UNKNOWN]
    assert printed(result.rows[0])["condition"] == "unknown"
    assert len(result.unreachable) == 1


def test_a_transaction_that_ends_meanwhile_has_no_holder(kafka_with_open_transaction: FakeKafka) -> None:
    coordinate(kafka_with_open_transaction, None)
    kafka_with_open_transaction.scripts[DescribeProducersRequest].clear()
    kafka_with_open_transaction.script(DescribeProducersRequest, DescribeProducersResponse())
    [row] = blocked(kafka_with_open_transaction).rows
    assert (row.state, row.producer) == (HolderState.ENDED, None)
    assert printed(row)["condition"] == "just ended"


@pytest.mark.parametrize("later", [producers(-1), producers(STABLE + 1), DescribeProducersResponse()])
def test_a_transaction_that_ends_while_its_producer_begins_another_one_is_not_hanging(
    kafka_with_open_transaction: FakeKafka, later: DescribeProducersResponse
) -> None:
    coordinate(kafka_with_open_transaction, "Ongoing", partition=1)
    kafka_with_open_transaction.scripts[DescribeProducersRequest].pop()
    kafka_with_open_transaction.script(DescribeProducersRequest, later)
    [row] = blocked(kafka_with_open_transaction).rows
    assert (row.state, row.producer) == (HolderState.ENDED, None)


@pytest.mark.parametrize("later", [producers(-1), producers(STABLE + 1)])
def test_a_transaction_that_ends_before_its_marker_is_not_aborted(
    kafka_with_open_transaction: FakeKafka, later: DescribeProducersResponse
) -> None:
    coordinate(kafka_with_open_transaction, "Ongoing", partition=1)
    kafka_with_open_transaction.scripts[DescribeProducersRequest].pop()
    kafka_with_open_transaction.script(DescribeProducersRequest, later)
    with pytest.raises(NotFound, match="has ended its transaction in t-0 meanwhile"):
        abort(kafka_with_open_transaction)
    assert kafka_with_open_transaction.of(WriteTxnMarkersRequest) == []


def abort(kafka: FakeKafka, producer_id: int = PRODUCER_ID) -> int:
    async def test() -> int:
        async with Cluster(kafka.bootstrap) as cluster:
            return (await abort_hanging_transaction(cluster, TOPIC, 0, producer_id)).first_offset

    return run(kafka, test())


def test_a_hanging_transaction_is_aborted_by_a_marker_at_the_leader(kafka_with_open_transaction: FakeKafka) -> None:
    coordinate(kafka_with_open_transaction, None)
    result = WritableTxnMarkerPartitionResult(partition_index=0)
    topics = [WritableTxnMarkerTopicResult(name=TOPIC, partitions=[result])]
    markers = [WritableTxnMarkerResult(producer_id=PRODUCER_ID, topics=topics)]
    kafka_with_open_transaction.script(WriteTxnMarkersRequest, WriteTxnMarkersResponse(markers=markers))
    assert abort(kafka_with_open_transaction) == STABLE
    [received] = kafka_with_open_transaction.of(WriteTxnMarkersRequest)
    [marker] = received.request.markers
    assert received.node_id == 2
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (PRODUCER_ID, 1, False)
    assert marker.coordinator_epoch == 0


def test_a_transaction_with_a_coordinator_is_not_aborted_by_a_marker(kafka_with_open_transaction: FakeKafka) -> None:
    coordinate(kafka_with_open_transaction, "Ongoing")
    with pytest.raises(ClientError, match="not hanging: broker 3 coordinates it; end it with: odradek txns abort id"):
        abort(kafka_with_open_transaction)
    assert kafka_with_open_transaction.of(WriteTxnMarkersRequest) == []


def test_a_producer_without_an_open_transaction_is_not_found(kafka_with_open_transaction: FakeKafka) -> None:
    with pytest.raises(NotFound, match="producer 8 has no open transaction in t-0"):
        abort(kafka_with_open_transaction, 8)
