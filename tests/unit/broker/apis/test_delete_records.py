"""DeleteRecords: on one broker, and with followers that have to follow."""

import asyncio
from collections.abc import AsyncIterator
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
from odradek.storage.files import checkpoint
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import EIO, NOW_MS, Rig, batch, fetched, outcome
from tests.support.replication_rig import TOPIC_ID, Brokers

E = ErrorCode
HIGH_WATERMARK = -1


def asked(*rows: tuple[str, int, int], timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)]) for name, index, offset in rows]
    return DeleteRecordsRequest(topics, timeout_ms)


def call(rig: Rig, *rows: tuple[str, int, int], timeout_ms: int = 60_000) -> Any:
    return delete_records.handle(rig.context(21, 2), asked(*rows, timeout_ms=timeout_ms))


def told(response: DeleteRecordsResponse) -> list[tuple[ErrorCode, int]]:
    return [(E(each.error_code), each.low_watermark) for topic in response.topics for each in topic.partitions]


def append(rig: Rig, count: int, topic: str = "t") -> None:
    for _ in range(count):
        rig.partition(topic).append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS, acks=1)


async def test_records_are_gone_for_readers_and_for_the_next_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, 5)
    assert told(await outcome(call(rig, ("t", 0, 3)))) == [(E.NONE, 3)]
    log = rig.partition().log
    with pytest.raises(Refusal) as refused:
        rig.partition().read(2, max_bytes=1000, limit=5, min_one_batch=True)
    assert refused.value.error is E.OFFSET_OUT_OF_RANGE
    kept = checkpoint.decode_offsets((tmp_path / checkpoint.LOG_START_OFFSETS).read_bytes())
    assert kept == {("t", 0): 3}
    assert told(await outcome(call(rig, ("t", 0, 1)))) == [(E.NONE, 3)], "never back"
    assert told(await outcome(call(rig, ("t", 0, HIGH_WATERMARK)))) == [(E.NONE, 5)]
    assert log.log_start_offset == log.log_end_offset == 5


async def test_what_is_refused_is_refused_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rig.topic("__consumer_offsets", number=101)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=102)
    rig.services.authorizer = broker_context.Deny((AclOperation.DELETE, "secret"))
    rig.topic("secret", number=103)
    append(rig, 2)
    rows = [("t", 0, 3), ("t", 0, -2), ("t", 7, 0), ("__consumer_offsets", 0, 0), ("elsewhere", 0, 0), ("secret", 0, 0)]
    errors = [error for error, _ in told(await outcome(call(rig, *rows)))]
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
async def test_a_topic_that_is_only_compacted_keeps_its_records(tmp_path: Path, policy: str, error: ErrorCode) -> None:
    rig = Rig(tmp_path, config=LogConfig(cleanup_policy=tuple(policy.split(","))))
    rig.topic("t")
    rig.partition().append(
        build_batch([(b"k", b"v", NOW_MS, ()), (b"k", b"w", NOW_MS, ())]), origin=Origin.CLIENT, now_ms=NOW_MS
    )
    assert told(await outcome(call(rig, ("t", 0, 1)))) == [(error, -1 if error else 1)]


async def test_it_waits_for_followers_that_are_alive(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    leading = rig.partition().leader_term
    assert leading is not None
    fetched(rig, 2, 3)
    leading.replicas.followers[2].log_start = 0
    waiting = asyncio.ensure_future(call(rig, ("t", 0, 2)))
    await asyncio.sleep(0)
    leading.replicas.followers[2].log_start = 1
    fetched(rig, 2, 3)
    await asyncio.sleep(0)
    assert not waiting.done()
    leading.replicas.followers[2].log_start = 2
    fetched(rig, 2, 3)
    assert told(await waiting) == [(E.NONE, 2)]


async def test_at_the_time_out_it_says_how_far_the_replicas_are(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    leading = rig.partition().leader_term
    assert leading is not None
    leading.replicas.followers[2].log_start = 0
    fetched(rig, 2, 3)
    assert told(await outcome(call(rig, ("t", 0, 2), timeout_ms=0))) == [(E.REQUEST_TIMED_OUT, 0)]
    assert rig.partition().log.log_start_offset == 2
    assert len(leading.deletions) == 0


async def test_a_leader_that_is_deposed_answers_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(1, 2))
    append(rig, 3)
    fetched(rig, 2, 3)
    waiting = asyncio.ensure_future(call(rig, ("t", 0, 2)))
    await asyncio.sleep(0)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    assert told(await waiting) == [(E.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_a_disk_that_cannot_keep_the_new_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, 3)

    async def broken() -> None:
        raise OSError(EIO, "injected")

    monkeypatch.setattr(rig.logs, "checkpoint_log_starts", broken)
    assert told(await outcome(call(rig, ("t", 0, 2)))) == [(E.KAFKA_STORAGE_ERROR, -1)]


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path)
    yield made
    await made.close()


async def test_followers_follow_with_their_fetches(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    assert told(await outcome(call(brokers[1], ("t", 0, 1)))) == [(E.NONE, 1)]
    assert [brokers[number].partition().log.log_start_offset for number in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("order", [(1,), (1, 2, 3), (2, 3, 1), (2, 1)])
async def test_nobody_waits_for_what_retention_has_taken(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Whoever's turn came first, and without a record since: the leader gets to know where all logs begin."""
    brokers = Brokers(tmp_path, config=LogConfig(retention_ms=1_000))
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[3].committed() == 1)
    await brokers.rounds(100)
    for number in order:
        apply_retention(brokers[number].partition(), NOW_MS + 5_000)
        await brokers.rounds(100)
    async with asyncio.timeout(5):
        assert told(await outcome(call(brokers[1], ("t", 0, 1)))) == [(E.NONE, 1)]
    assert [brokers[number].partition().log.log_start_offset for number in (1, 2, 3)] == [1, 1, 1]
    await brokers.close()


async def test_a_broker_that_is_dead_is_not_waited_for(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.cut[3] = None
    waiting = asyncio.ensure_future(call(brokers[1], ("t", 0, 1)))
    leading = brokers[1].partition().leader_term
    assert leading is not None
    await brokers.until(lambda: leading.replicas.followers[2].log_start == 1)
    assert not waiting.done()
    brokers.fence(3, isr=[1, 2])
    assert told(await waiting) == [(E.NONE, 1)]
    assert brokers.newest.topic_by_id(TOPIC_ID).partitions[0].isr == (1, 2)


def test_every_partition_is_told_what_the_whole_is_refused_for(tmp_path: Path) -> None:
    context = Rig(tmp_path).context(21, 2)
    response = delete_records.refuse(context, asked(("t", 0, 1), ("u", 1, 2)), E.NOT_CONTROLLER, None)
    assert told(response) == [(E.NOT_CONTROLLER, -1)] * 2
