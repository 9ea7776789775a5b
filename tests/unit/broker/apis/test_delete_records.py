"""DeleteRecords: on one broker, and with followers that advance their log start offset."""

import asyncio
from collections.abc import AsyncIterator
from errno import EMFILE
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import delete_records
from odradek.broker.partition.background_jobs import apply_retention
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.records.metadata import PartitionChangeRecord
from odradek.storage.config import LogConfig
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import checkpoint
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import EIO, NOW_MS, Rig, batch, fetched, outcome
from tests.support.replication_rig import TOPIC_ID, Brokers

E = ErrorCode
HIGH_WATERMARK = -1


def delete_request(*rows: tuple[str, int, int], timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)]) for name, index, offset in rows]
    return DeleteRecordsRequest(topics, timeout_ms)


def delete(rig: Rig, *rows: tuple[str, int, int], timeout_ms: int = 60_000) -> Any:
    return delete_records.handle(rig.context(21, 2), delete_request(*rows, timeout_ms=timeout_ms))


def results(response: DeleteRecordsResponse) -> list[tuple[ErrorCode, int]]:
    return [
        (E(partition.error_code), partition.low_watermark)
        for topic in response.topics
        for partition in topic.partitions
    ]


def append(rig: Rig, count: int, topic: str = "t") -> None:
    for _ in range(count):
        rig.partition(topic).append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS, acks=1)


async def test_deleted_records_are_unreadable_and_the_log_start_is_checkpointed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, 5)
    assert results(await outcome(delete(rig, ("t", 0, 3)))) == [(E.NONE, 3)]
    log = rig.partition().log
    with pytest.raises(Refusal) as refused:
        rig.partition().read(2, max_bytes=1000, limit=5, min_one_batch=True)
    assert refused.value.error is E.OFFSET_OUT_OF_RANGE
    kept = checkpoint.decode_offsets((tmp_path / checkpoint.LOG_START_OFFSETS).read_bytes())
    assert kept == {("t", 0): 3}
    assert results(await outcome(delete(rig, ("t", 0, 1)))) == [(E.NONE, 3)], "the log start offset must not decrease"
    assert results(await outcome(delete(rig, ("t", 0, HIGH_WATERMARK)))) == [(E.NONE, 5)]
    assert log.log_start_offset == log.log_end_offset == 5


async def test_each_partition_is_refused_with_its_own_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rig.topic("__consumer_offsets", number=101)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=102)
    rig.services.authorizer = broker_context.Deny((AclOperation.DELETE, "secret"))
    rig.topic("secret", number=103)
    append(rig, 2)
    rows = [("t", 0, 3), ("t", 0, -2), ("t", 7, 0), ("__consumer_offsets", 0, 0), ("elsewhere", 0, 0), ("secret", 0, 0)]
    errors = [error for error, _ in results(await outcome(delete(rig, *rows)))]
    assert errors == [
        E.OFFSET_OUT_OF_RANGE,
        E.OFFSET_OUT_OF_RANGE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_TOPIC_EXCEPTION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert rig.partition().log.log_start_offset == 0


@pytest.mark.parametrize(
    ("policy", "error"), [("compact", E.POLICY_VIOLATION), ("compact,delete", E.NONE), ("delete", E.NONE), ("", E.NONE)]
)
async def test_delete_records_of_a_compact_only_topic_is_a_policy_violation(
    tmp_path: Path, policy: str, error: ErrorCode
) -> None:
    rig = Rig(tmp_path, config=LogConfig(cleanup_policy=tuple(policy.split(","))))
    rig.topic("t")
    rig.partition().append(
        build_batch([(b"k", b"v", NOW_MS, ()), (b"k", b"w", NOW_MS, ())]), origin=Origin.CLIENT, now_ms=NOW_MS
    )
    assert results(await outcome(delete(rig, ("t", 0, 1)))) == [(error, -1 if error else 1)]


async def test_response_waits_until_active_followers_advance_their_log_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    leader_term = rig.partition().leader_term
    assert leader_term is not None
    fetched(rig, 2, 3)
    leader_term.replicas.followers[2].log_start = 0
    task = asyncio.ensure_future(delete(rig, ("t", 0, 2)))
    await asyncio.sleep(0)
    leader_term.replicas.followers[2].log_start = 1
    fetched(rig, 2, 3)
    await asyncio.sleep(0)
    assert not task.done()
    leader_term.replicas.followers[2].log_start = 2
    fetched(rig, 2, 3)
    assert results(await task) == [(E.NONE, 2)]


async def test_timeout_returns_the_low_watermark_of_the_replicas(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    leader_term = rig.partition().leader_term
    assert leader_term is not None
    leader_term.replicas.followers[2].log_start = 0
    fetched(rig, 2, 3)
    assert results(await outcome(delete(rig, ("t", 0, 2), timeout_ms=0))) == [(E.REQUEST_TIMED_OUT, 0)]
    assert rig.partition().log.log_start_offset == 2
    assert len(leader_term.deletions) == 0


async def test_lost_leadership_completes_the_request_immediately(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    fetched(rig, 2, 3)
    task = asyncio.ensure_future(delete(rig, ("t", 0, 2)))
    await asyncio.sleep(0)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    assert results(await task) == [(E.NOT_LEADER_OR_FOLLOWER, -1)]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (OSError(EIO, "injected"), E.KAFKA_STORAGE_ERROR),
        (ResourcesExhausted(EMFILE, "injected"), E.REQUEST_TIMED_OUT),
    ],
)
async def test_failed_checkpoint_of_the_log_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, error: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, 3)

    async def fail() -> None:
        raise failure

    monkeypatch.setattr(rig.logs, "checkpoint_log_starts", fail)
    assert results(await outcome(delete(rig, ("t", 0, 2)))) == [(error, -1)]


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    cluster = Brokers(tmp_path)
    yield cluster
    await cluster.close()


async def test_followers_adopt_the_log_start_of_the_leader(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    assert results(await outcome(delete(brokers[1], ("t", 0, 1)))) == [(E.NONE, 1)]
    assert [brokers[number].partition().log.log_start_offset for number in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("order", [(1,), (1, 2, 3), (2, 3, 1), (2, 1)])
async def test_delete_records_completes_after_retention_in_any_order_of_replicas(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Retention runs on the replicas in `order`, and no record is appended afterwards.

    The leader still learns the log start offset of every replica.
    """
    brokers = Brokers(tmp_path, config=LogConfig(retention_ms=1_000))
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[3].committed() == 1)
    await brokers.rounds(100)
    for number in order:
        apply_retention(brokers[number].partition(), NOW_MS + 5_000)
        await brokers.rounds(100)
    async with asyncio.timeout(5):
        assert results(await outcome(delete(brokers[1], ("t", 0, 1)))) == [(E.NONE, 1)]
    assert [brokers[number].partition().log.log_start_offset for number in (1, 2, 3)] == [1, 1, 1]
    await brokers.close()


async def test_response_does_not_wait_for_a_fenced_broker(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.isolated[3] = None
    task = asyncio.ensure_future(delete(brokers[1], ("t", 0, 1)))
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    await brokers.until(lambda: leader_term.replicas.followers[2].log_start == 1)
    assert not task.done()
    brokers.fence(3, isr=[1, 2])
    assert results(await task) == [(E.NONE, 1)]
    assert brokers.newest.topic_by_id(TOPIC_ID).partitions[0].isr == (1, 2)


def test_refusal_of_the_request_is_the_error_of_every_partition(tmp_path: Path) -> None:
    context = Rig(tmp_path).context(21, 2)
    response = delete_records.refuse(context, delete_request(("t", 0, 1), ("u", 1, 2)), E.NOT_CONTROLLER, None)
    assert results(response) == [(E.NOT_CONTROLLER, -1)] * 2
