"""Produce: checks, acks, idempotence, transaction verification and disk failures."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.apis import produce
from odradek.broker.requests.session import Session
from odradek.client_shares import client_of
from odradek.cluster.authorizer import AclOperation
from odradek.coordinator.txn.records import to_record
from odradek.protocol.batch import build_batch, end_txn_marker, iter_batches
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.metadata import PartitionChangeRecord
from odradek.protocol.txn_state import TxnState
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import EIO, NOW_MS, Rig, batch, fetched, outcome
from tests.support.txn_rig import transaction

E = ErrorCode
VERSION = 12


def request(
    *rows: tuple[str, int, bytes | None], acks: int = -1, timeout_ms: int = 60_000, transactional_id: str | None = None
) -> ProduceRequest:
    topics = [
        TopicProduceData(topic, partition_data=[PartitionProduceData(index, data)]) for topic, index, data in rows
    ]
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


async def send(rig: Rig, produce_request: ProduceRequest, version: int = VERSION, **context: Any) -> ProduceResponse:
    response: ProduceResponse = await outcome(produce.handle(rig.context(0, version, **context), produce_request))
    return response


def partition_responses(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


def errors(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(partition.error_code) for partition in partition_responses(response)]


def stored(rig: Rig, index: int = 0) -> list[bytes]:
    log = rig.partition("t", index).log
    read: Any = log.read(log.log_start_offset, max_bytes=1_000_000, limit=log.log_end_offset, min_one_batch=True)
    return [bytes(view) for _, view in iter_batches(read.records)]


async def test_batch_is_stored_unchanged_and_completes_in_stage_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    first, second = batch(b"a", b"b"), batch(b"c")
    response = produce.handle(rig.context(0, VERSION), request(("t", 0, first)))
    assert isinstance(response, ProduceResponse)
    partition = partition_responses(response)[0]
    assert (partition.error_code, partition.base_offset, partition.log_append_time_ms, partition.log_start_offset) == (
        0,
        0,
        -1,
        0,
    )
    assert partition_responses(await send(rig, request(("t", 0, second))))[0].base_offset == 2
    assert [data[21:] for data in stored(rig)] == [first[21:], second[21:]]
    assert rig.partition().log.high_watermark == 3


async def test_new_producer_counts_for_the_client_that_sends_the_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    data = batch(producer_id=5, epoch=0, sequence=0)
    assert errors(await send(rig, request(("t", 0, data)))) == [E.NONE]
    producers = rig.partition().log.producers
    expected = client_of("127.0.0.1", rig.context(0, VERSION).client_id)
    assert [row.client for row in producers.active()] == [expected]
    assert producers.shares.held(expected) == 1


async def test_each_invalid_partition_is_refused_with_its_own_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(max_message_bytes=300))
    rig.topic("t", 8)
    good = batch(b"good")
    broken = bytearray(batch(b"bad"))
    broken[-1] ^= 1
    rows: list[tuple[str, int, bytes | None, ErrorCode]] = [
        ("t", 0, good, E.NONE),
        ("t", 1, bytes(broken), E.CORRUPT_MESSAGE),
        ("t", 2, None, E.INVALID_RECORD),
        ("t", 3, good + good, E.INVALID_RECORD),
        ("t", 4, batch(b"x" * 300), E.MESSAGE_TOO_LARGE),
        (
            "t",
            5,
            end_txn_marker(producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, timestamp=0),
            E.INVALID_RECORD,
        ),
        ("t", 6, batch(b"x", producer_id=3, epoch=0, sequence=-1), E.INVALID_RECORD),
        ("t", 7, build_batch([(None, b"late", NOW_MS + 7_200_000, ())]), E.INVALID_TIMESTAMP),
        ("t", 8, good, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 9, good, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, good, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    produce_request = request(*((topic, index, data) for topic, index, data, _ in rows), transactional_id="id")
    response = await send(rig, produce_request)
    assert errors(response) == [error for *_, error in rows]
    assert [partition.base_offset for partition in partition_responses(response)] == [0, *[-1] * 10]
    assert [rig.partition("t", index).log.log_end_offset for index in range(8)] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert partition_responses(response)[7].error_message is not None
    assert partition_responses(response)[7].log_start_offset == 0
    assert partition_responses(response)[4].log_start_offset == -1


@pytest.mark.parametrize("acks", [2, -2, 7])
async def test_invalid_acks_are_refused_and_nothing_is_written(tmp_path: Path, acks: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert errors(await send(rig, request(("t", 0, batch()), acks=acks))) == [E.INVALID_REQUIRED_ACKS]
    assert rig.partition().log.log_end_offset == 0


async def test_acks_zero_has_no_response_and_an_error_closes_the_connection(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert produce.handle(rig.context(0, VERSION), request(("t", 0, batch()), acks=0)) is None
    assert rig.closed == []
    assert produce.handle(rig.context(0, VERSION), request(("t", 0, batch()), ("t", 9, batch()), acks=0)) is None
    assert len(rig.closed) == 1
    assert "t-9: UNKNOWN_TOPIC_OR_PARTITION" in rig.closed[0]
    assert rig.partition().log.log_end_offset == 2
    context = rig.context(0, VERSION)
    assert produce.refuse(context, request(("t", 0, batch()), acks=0), E.UNKNOWN_SERVER_ERROR, None) is None
    assert len(rig.closed) == 2


async def test_acks_all_waits_for_the_high_watermark_and_acks_one_does_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    context = rig.context(0, VERSION)
    waiting: Any = [produce.handle(context, request(("t", 0, batch()))) for _ in range(3)]
    assert isinstance(produce.handle(context, request(("t", 0, batch()), acks=1)), ProduceResponse)
    assert not any(future.done() for future in waiting)
    rig.commits[0].advance(2)
    assert [future.done() for future in waiting] == [True, True, False]
    rig.commits[0].advance()
    assert errors(waiting[2].result()) == [E.NONE]
    assert partition_responses(waiting[2].result())[0].base_offset == 2


async def test_append_not_committed_in_time_is_a_request_timeout_and_stays_in_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    response = await send(rig, request(("t", 0, batch()), timeout_ms=0))
    assert errors(response) == [E.REQUEST_TIMED_OUT]
    assert partition_responses(response)[0].base_offset == 0
    assert rig.partition().log.log_end_offset == 1


async def test_lost_leadership_fails_parked_produce_requests_with_a_hint_to_the_new_leader(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    topic_id = rig.topic("t", replicas=(1, 2))
    waiting: Any = produce.handle(rig.context(0, VERSION), request(("t", 0, batch())))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    response = await waiting
    assert errors(response) == [E.NOT_LEADER_OR_FOLLOWER]
    assert (
        partition_responses(response)[0].current_leader.leader_id,
        partition_responses(response)[0].current_leader.leader_epoch,
    ) == (2, 1)
    response = await send(rig, request(("t", 0, batch())), 10)
    assert errors(response) == [E.NOT_LEADER_OR_FOLLOWER]
    assert partition_responses(response)[0].current_leader.leader_id == 2
    older_response = await send(rig, request(("t", 0, batch())), 9)
    assert partition_responses(older_response)[0].current_leader.leader_id == -1


async def test_acks_all_below_min_insync_replicas_is_refused_before_the_append(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(min_insync_replicas=2))
    topic_id = rig.topic("t", replicas=(1, 2))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]))
    assert errors(await send(rig, request(("t", 0, batch())))) == [E.NOT_ENOUGH_REPLICAS]
    assert rig.partition().log.log_end_offset == 0
    assert errors(await send(rig, request(("t", 0, batch()), acks=1))) == [E.NONE]


async def test_isr_below_minimum_after_the_append_is_an_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(min_insync_replicas=2))
    rig.topic("t", replicas=(1, 2))
    waiting: Any = produce.handle(rig.context(0, VERSION), request(("t", 0, batch())))
    leader_term = rig.partition().leader_term
    assert leader_term is not None
    leader_term.replicas.min_isr = 3
    rig.partition().watermarks.advance_high_watermark(1)
    assert errors(await waiting) == [E.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


async def test_nothing_is_committed_while_the_isr_is_below_its_minimum(tmp_path: Path) -> None:
    """KIP-966: with the leader alone in the ISR the high watermark stays; it advances when a second replica returns."""
    rig = Rig(tmp_path, config=LogConfig(min_insync_replicas=2))
    topic_id = rig.topic("t", replicas=(1, 2))
    first: Any = produce.handle(rig.context(0, VERSION), request(("t", 0, batch()), timeout_ms=1))
    second: Any = produce.handle(rig.context(0, VERSION), request(("t", 0, batch())))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]))
    assert errors(await first) == [E.REQUEST_TIMED_OUT]
    assert errors(await send(rig, request(("t", 0, batch())))) == [E.NOT_ENOUGH_REPLICAS]
    assert rig.partition().log.high_watermark == 0
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 2]))
    fetched(rig, 2, 2)
    assert errors(await second) == [E.NONE]


async def test_min_insync_replicas_is_limited_by_the_replication_factor(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(min_insync_replicas=2))
    rig.topic("t")
    assert errors(await send(rig, request(("t", 0, batch())))) == [E.NONE]


async def test_duplicate_batch_gets_the_first_offset_and_is_not_written_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    first = batch(b"a", b"b", producer_id=7, epoch=0, sequence=0)
    second = batch(b"c", producer_id=7, epoch=0, sequence=2)
    for data, offset in ((first, 0), (second, 2), (first, 0)):
        partition = partition_responses(await send(rig, request(("t", 0, data))))[0]
        assert (partition.error_code, partition.base_offset) == (0, offset)
    assert rig.partition().log.log_end_offset == 3
    gap = await send(rig, request(("t", 0, batch(b"x", producer_id=7, epoch=0, sequence=9))))
    assert errors(gap) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    stale = batch(b"x", producer_id=7, epoch=1, sequence=0), batch(b"y", producer_id=7, epoch=0, sequence=3)
    assert [errors(await send(rig, request(("t", 0, data)))) for data in stale] == [
        [E.NONE],
        [E.INVALID_PRODUCER_EPOCH],
    ]


async def test_produce_by_topic_id_from_v13(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rows = [
        TopicProduceData(topic_id=requested_id, partition_data=[PartitionProduceData(0, batch())])
        for requested_id in (topic_id, UUID(int=999))
    ]
    response = await send(rig, ProduceRequest(None, -1, 1_000, rows), 13)
    assert errors(response) == [E.NONE, E.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in response.responses] == [topic_id, UUID(int=999)]


@pytest.mark.parametrize(("client_id", "error"), [("client", E.INVALID_TOPIC_EXCEPTION), ("__admin_client", E.NONE)])
async def test_only_the_admin_client_produces_to_internal_topics(
    tmp_path: Path, client_id: str, error: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    rig.topic("__transaction_state")
    record = to_record(transaction(TxnState.EMPTY), 2)
    tombstone = request(("__transaction_state", 0, build_batch([(record.key, None, NOW_MS, ())])))
    assert errors(await send(rig, tombstone, client_id=client_id)) == [error]


async def test_only_the_leader_checks_records_of_internal_topics_one_batch_per_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("__transaction_state", 3)
    checks: list[int] = []
    turns = [0]

    async def next_turn(_: Session) -> None:
        turns[0] += 1
        await asyncio.sleep(0)

    rig.session.on_next_turn = next_turn
    monkeypatch.setattr(produce, "check_client_append", lambda *_: checks.append(turns[0]))
    rows = [("__transaction_state", index, batch()) for index in range(3)]
    assert errors(await send(rig, request(*rows), client_id="__admin_client")) == [E.NONE] * 3
    assert checks == [0, 1, 2]
    rig.play(PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=2))
    response = await send(rig, request(rows[1]), client_id="__admin_client")
    assert (errors(response), len(checks)) == ([E.NOT_LEADER_OR_FOLLOWER], 3)


async def test_transactional_batch_for_an_internal_topic_is_not_added_to_the_transaction(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("__transaction_state")
    planted = request(
        ("__transaction_state", 0, batch(producer_id=9, epoch=0, sequence=0, transactional=True)), transactional_id="x"
    )
    response = await send(rig, planted, client_id="__admin_client")
    assert errors(response) == [E.INVALID_RECORD]
    assert "no transactional batch" in (response.responses[0].partition_responses[0].error_message or "")


async def test_value_for_the_transaction_log_is_refused_with_a_message(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("__transaction_state")
    record = to_record(transaction(TxnState.PREPARE_COMMIT), 2)
    planted = request(("__transaction_state", 0, build_batch([(record.key, record.value, NOW_MS, ())])))
    response = await send(rig, planted, client_id="__admin_client")
    assert errors(response) == [E.INVALID_RECORD]
    message = response.responses[0].partition_responses[0].error_message
    assert "only the transaction coordinator writes TransactionLogValue" in (message or "")
    assert rig.partition("__transaction_state").log.log_end_offset == 0


async def test_topic_without_write_permission_is_refused_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.WRITE, "t"))
    rig.topic("t")
    rig.topic("u", number=101)
    response = await send(rig, request(("t", 0, batch()), ("u", 0, batch()), ("secret", 0, batch())))
    assert errors(response) == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


# ---- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", [None, "denied"])
async def test_transactional_batch_without_permitted_transactional_id_is_refused(
    tmp_path: Path, transactional_id: str | None
) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.WRITE, "denied"))
    rig.topic("t")
    data = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    with pytest.raises(Refusal) as refused:
        produce.handle(rig.context(0, VERSION), request(("t", 0, data), transactional_id=transactional_id))
    assert refused.value.error is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    response = produce.refuse(rig.context(0, VERSION), request(("t", 0, data)), refused.value.error, None)
    assert response is not None
    assert errors(response) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("responds_later", [False, True])
@pytest.mark.parametrize("version", [11, 12])
async def test_verification_runs_once_per_transaction_and_partition(
    tmp_path: Path, version: int, responds_later: bool
) -> None:
    rig = Rig(tmp_path)
    rig.coordinator.responds_later = responds_later
    rig.topic("t", 2)
    for sequence in range(3):
        data = batch(producer_id=7, epoch=0, sequence=sequence, transactional=True)
        produce_request = request(("t", 0, data), ("t", 1, batch()), transactional_id="id")
        assert errors(await send(rig, produce_request, version)) == [E.NONE, E.NONE]
    assert rig.coordinator.verified == [("t", 0)]
    assert rig.partition().log.last_stable_offset == 0


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
        (E.NOT_COORDINATOR, 12, E.NOT_ENOUGH_REPLICAS),
        (E.PRODUCER_FENCED, 12, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, 12, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_failed_verification_refuses_only_its_partition(
    tmp_path: Path, error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    rig.coordinator.error = error
    rig.topic("t", 2)
    data = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    response = await send(rig, request(("t", 0, data), ("t", 1, batch()), transactional_id="id"), version)
    assert errors(response) == [expected, E.NONE]
    assert rig.partition().log.log_end_offset == 0


async def test_marker_between_verification_and_append_invalidates_the_guard(tmp_path: Path) -> None:
    """The late batch must not open a hanging transaction (KIP-890).

    1. The coordinator verifies a batch of transaction n.
    2. The abort marker of transaction n is appended.
    3. The batch arrives at the log and is refused with INVALID_TXN_STATE.
    """
    rig = Rig(tmp_path)
    rig.coordinator.responds_later = True
    rig.topic("t")
    late_batch = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    pending = asyncio.ensure_future(send(rig, request(("t", 0, late_batch), transactional_id="id"), 11))
    while not rig.coordinator.verified:
        await asyncio.sleep(0)
    marker = end_txn_marker(producer_id=7, producer_epoch=0, coordinator_epoch=0, commit=False, timestamp=NOW_MS)
    rig.partition().append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS, transaction_version=0)
    assert errors(await pending) == [E.INVALID_TXN_STATE]
    assert rig.partition().log.last_stable_offset == rig.partition().log.high_watermark == 1


# ---- disk -----------------------------------------------------------------------------------------------------------


async def test_flush_messages_one_acknowledges_only_after_the_flush(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(flush_messages=1))
    rig.topic("t")
    rig.disk.sync_allowed = asyncio.Event()
    context = rig.context(0, VERSION)
    waiting: Any = [produce.handle(context, request(("t", 0, batch()), acks=acks)) for acks in (-1, 1, -1)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(future.done() for future in waiting)
    assert rig.partition().log.high_watermark == 0
    before = rig.disk.syncs
    rig.disk.sync_allowed.set()
    assert [errors(await future) for future in waiting] == [[E.NONE]] * 3
    assert rig.partition().log.flushed_offset == rig.partition().log.high_watermark == 3
    assert rig.disk.syncs > before


async def test_a_failed_flush_acknowledges_nothing_and_takes_the_partition_offline(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(flush_messages=1))
    rig.topic("t", 2)
    rig.disk.failing["sync"] = EIO
    response = await send(rig, request(("t", 0, batch())))
    assert errors(response) == [E.KAFKA_STORAGE_ERROR]
    rig.disk.failing.clear()
    response = await send(rig, request(("t", 0, batch()), ("t", 1, batch())))
    assert errors(response) == [E.KAFKA_STORAGE_ERROR, E.NONE]


async def test_a_failed_write_acknowledges_nothing_and_takes_the_partition_offline(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t", 2)
    parked: Any = produce.handle(rig.context(0, VERSION), request(("t", 0, batch())))
    rig.disk.failing["write"] = EIO
    assert errors(await send(rig, request(("t", 0, batch())))) == [E.KAFKA_STORAGE_ERROR]
    assert errors(await parked) == [E.KAFKA_STORAGE_ERROR]
    rig.disk.failing.clear()
    assert errors(await send(rig, request(("t", 0, batch())))) == [E.KAFKA_STORAGE_ERROR]
    assert errors(await send(rig, request(("t", 1, batch()), acks=1))) == [E.NONE]


async def test_invalid_records_are_listed_with_their_batch_index(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(cleanup_policy=("compact",)))
    rig.topic("t")
    late_ms = NOW_MS + 7_200_000
    timed = build_batch([(b"k", b"v", late_ms if index in {1, 3} else NOW_MS, ()) for index in range(5)])
    keyless = build_batch([(None if index == 2 else b"k", b"v", NOW_MS, ()) for index in range(4)])
    for data, error, indexes in ((timed, E.INVALID_TIMESTAMP, [1, 3]), (keyless, E.INVALID_RECORD, [2])):
        partition = partition_responses(await send(rig, request(("t", 0, data))))[0]
        assert partition.error_code == error
        assert [record_error.batch_index for record_error in partition.record_errors] == indexes
        assert all(record_error.batch_index_error_message for record_error in partition.record_errors)
        assert partition.error_message is not None
        assert f"record {indexes[0]}: " in partition.error_message
    assert rig.partition().log.log_end_offset == 0


async def test_log_append_time_is_in_the_response(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=replace(LogConfig(), message_timestamp_type="LogAppendTime"))
    rig.topic("t")
    assert partition_responses(await send(rig, request(("t", 0, batch()))))[0].log_append_time_ms == NOW_MS


async def test_partition_named_twice_gets_its_last_batch_and_one_result(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    first, last, other = batch(b"a"), batch(b"b", b"c"), batch(b"d")
    response = await send(rig, request(("t", 0, first), ("t", 1, other), ("t", 0, last)))
    assert [(topic.name, [each.index for each in topic.partition_responses]) for topic in response.responses] == [
        ("t", [0, 1])
    ]
    assert errors(response) == [E.NONE, E.NONE]
    assert [data[21:] for data in stored(rig, 0)] == [last[21:]]
    assert [data[21:] for data in stored(rig, 1)] == [other[21:]]


async def test_invalid_last_batch_refuses_the_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert errors(await send(rig, request(("t", 0, batch(b"a")), ("t", 0, None)))) == [E.INVALID_RECORD]
    assert stored(rig) == []
