import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.apis import fetch
from odradek.broker.requests.api import Ordered
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchResponse, ForgottenTopic, ReplicaState
from odradek.protocol.records.metadata import PartitionChangeRecord
from tests.support import broker_context
from tests.support.data_rig import EIO, Gate, Rig, batch, outcome
from tests.support.fetching import VERSION, append, errors, offsets, partition_responses, read, request, settle

E = ErrorCode


# ---- reading


async def test_a_warm_read_is_answered_without_a_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a", b"b")
    append(rig, b"c")
    response = fetch.handle(rig.context(1, VERSION), request(("t", 0, 1)))
    assert isinstance(response, FetchResponse)
    answer = partition_responses(response)[0]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert offsets(answer) == [0, 2]  # whole batches: the first one begins below the offset
    assert answer.aborted_transactions is None


async def test_an_empty_read_says_where_the_log_ends(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    answer = partition_responses(await read(rig, request(("t", 0, 1))))[0]
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 1)


@pytest.mark.parametrize("offset", [-1, 2, 100])
async def test_offsets_outside_of_the_log_are_refused(tmp_path: Path, offset: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    answer = partition_responses(await read(rig, request(("t", 0, offset))))[0]
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (E.OFFSET_OUT_OF_RANGE, -1, -1)


async def test_between_high_watermark_and_log_end_there_is_nothing_yet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, gate=Gate)
    rig.topic("t")
    append(rig, b"a")
    for offset in (0, 1):
        answer = partition_responses(await read(rig, request(("t", 0, offset))))[0]
        assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 0)
    debug = partition_responses(await read(rig, request(("t", 0, 0), replica_id=-2)))[0]
    assert offsets(debug) == [0]


async def test_byte_limits_hold_but_for_the_first_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 3)
    size = len(batch(b"x" * 100))
    for index in range(3):
        for _ in range(3):
            append(rig, b"x" * 100, index=index)
    everything = ("t", 0, 0), ("t", 1, 0), ("t", 2, 0)

    async def read_counts(**limits: Any) -> list[int]:
        response = await read(rig, request(*everything, **limits))
        return [len(offsets(answer)) for answer in partition_responses(response)]

    assert await read_counts() == [3, 3, 3]
    assert await read_counts(partition_bytes=2 * size) == [2, 2, 2]
    assert await read_counts(max_bytes=4 * size) == [3, 1, 0]
    assert await read_counts(max_bytes=1) == [1, 0, 0]  # larger than every limit, and yet whole
    assert await read_counts(partition_bytes=1) == [1, 0, 0]
    assert await read_counts(max_bytes=0, min_bytes=0) == [1, 0, 0]


async def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fetch.max.bytes=1024")
    rig.topic("t")
    for _ in range(3):
        append(rig, b"x" * 600)
    asked = request(("t", 0, 0), max_bytes=2**31 - 1, partition_bytes=2**31 - 1)
    assert len(offsets(partition_responses(await read(rig, asked))[0])) == 1
    patient = request(("t", 0, 2), max_bytes=2**31 - 1, min_bytes=2**31 - 1, max_wait_ms=60_000)
    append(rig, b"y" * 600)
    assert len(offsets(partition_responses(await read(rig, patient))[0])) == 1, (
        "more than fetch.max.bytes is never waited for"
    )


async def test_errors_are_told_partition_by_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.READ, "secret"))
    rig.topic("t", 2)
    rig.topic("secret", number=101)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=102)
    append(rig, b"a")
    rig.partition("t", 1).take_offline(OSError(EIO, "injected"))
    rows = ("t", 0, 0), ("t", 1, 0), ("t", 5, 0), ("secret", 0, 0), ("elsewhere", 0, 0), ("nothing", 0, 0)
    response = await read(rig, request(*rows), 16 - 4)
    assert errors(response) == [
        E.NONE,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert errors(await read(rig, request(("t", 1, 0)), 5)) == [E.NOT_LEADER_OR_FOLLOWER]


async def test_leader_epochs_fence_and_hint(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    for epoch, error in ((0, E.FENCED_LEADER_EPOCH), (1, E.NONE), (2, E.UNKNOWN_LEADER_EPOCH), (-1, E.NONE)):
        asked = request(("t", 0, 0), leader_epoch=epoch)
        assert errors(await read(rig, asked)) == [error]
    asked = request(("", 0, 0), leader_epoch=0)
    asked.topics[0].topic_id = topic_id
    hinted = partition_responses(await read(rig, asked, 16))[0]
    assert (hinted.current_leader.leader_id, hinted.current_leader.leader_epoch) == (1, 1)


async def test_topics_are_found_by_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a")
    asked = request(("", 0, 0), ("", 0, 0))
    asked.topics[0].topic_id, asked.topics[1].topic_id = topic_id, UUID(int=999)
    response = await read(rig, asked, 13)
    assert errors(response) == [E.NONE, E.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in response.responses] == [topic_id, UUID(int=999)]


async def test_divergence_is_told_instead_of_data(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a", b"b")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    append(rig, b"c")
    same = partition_responses(await read(rig, request(("t", 0, 2), fetched_epoch=0)))[0]
    assert (same.diverging_epoch.epoch, offsets(same)) == (-1, [2])
    beyond = partition_responses(await read(rig, request(("t", 0, 3), fetched_epoch=0)))[0]
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset, beyond.records) == (0, 2, b"")
    unknown = partition_responses(await read(rig, request(("t", 0, 1), fetched_epoch=7)))[0]
    assert unknown.error_code == E.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("epoch", "error"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (0, E.UNKNOWN_LEADER_EPOCH)])
async def test_replicas_are_unknown_here(tmp_path: Path, epoch: int, error: ErrorCode) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert errors(await read(rig, request(("t", 0, 0), replica_id=2, leader_epoch=epoch))) == [error]
    asked = request(("", 0, 0), leader_epoch=epoch, replica_state=ReplicaState(2, 1))
    asked.topics[0].topic_id = rig.partition().topic_id
    assert errors(await read(rig, asked, 17)) == [error]


async def test_replicas_need_the_cluster_permission(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), request(("t", 0, 0), replica_id=2))
    assert refused.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    assert fetch.refuse(rig.context(1, 7), request(), E.CLUSTER_AUTHORIZATION_FAILED, None).error_code
    assert errors(fetch.refuse(rig.context(1, 6), request(("t", 0, 0)), E.UNKNOWN_SERVER_ERROR, None)) == [
        E.UNKNOWN_SERVER_ERROR
    ]


@pytest.mark.usefixtures("from_the_file")
async def test_cold_data_is_read_in_stage_two(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing["cold"] = 0
    response = await read(rig, request(("t", 0, 0), ("t", 1, 0)))
    assert [offsets(answer) for answer in partition_responses(response)] == [[0], [0]]


@pytest.mark.usefixtures("from_the_file")
@pytest.mark.parametrize("cold", [False, True])
async def test_answers_shrink_where_memory_is_short_but_hold_one_batch(tmp_path: Path, cold: bool) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for _ in range(20):
        append(rig, b"x" * 1_000)
    if cold:
        rig.disk.failing["cold"] = 0
    budget = rig.services.budget
    for left, expected in ((10**6, 20), (8 * 5_500, 5), (8 * 500, 1), (0, 1)):
        taken = budget.limit_bytes - left
        budget.reserve(taken)
        asked = request(("t", 0, 0), min_bytes=100_000 if left == 8 * 5_500 else 1, max_wait_ms=60_000 if left else 0)
        found = partition_responses(await asyncio.wait_for(read(rig, asked), 5))[0]
        assert len(offsets(found)) == expected, left
        budget.release(taken)
        await settle()
        assert budget.used_bytes == 0


@pytest.mark.usefixtures("from_the_file")
async def test_a_read_from_the_device_counts_before_it_is_done_and_holds_back_the_next_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"x" * 1_000)
    rig.disk.failing["cold"] = 0
    reading = fetch.handle(rig.context(1, VERSION), request(("t", 0, 0), partition_bytes=300_000))
    assert isinstance(reading, Ordered)
    task = asyncio.ensure_future(reading.awaitable)
    await asyncio.sleep(0)
    assert rig.services.budget.used_bytes == 300_000
    response = await task
    assert isinstance(response, FetchResponse)
    assert rig.services.budget.used_bytes == 0, "the connection counts it now"
    assert rig.session._waiting == {}


async def test_fetches_that_wake_together_share_the_room_that_is_left(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    left = 8 * 30_000
    rig.services.budget.reserve(rig.services.budget.limit_bytes - left)
    asked = request(("t", 0, 0), max_wait_ms=60_000, min_bytes=20_000)
    waiting = [asyncio.ensure_future(outcome(fetch.handle(rig.context(1, VERSION), asked))) for _ in range(30)]
    await settle()
    for _ in range(60):
        append(rig, b"x" * 1_000)
    got = [len(partition_responses(await asyncio.wait_for(each, 5))[0].records or b"") for each in waiting]
    assert got[0] > 20_000
    assert sum(got) < left


@pytest.mark.usefixtures("from_the_file")
@pytest.mark.parametrize("operation", ["read", "read_cold"])
async def test_a_failed_read_takes_the_partition_offline(tmp_path: Path, operation: str) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing.update({"cold": 0, operation: EIO})
    assert errors(await read(rig, request(("t", 0, 0)))) == [E.KAFKA_STORAGE_ERROR]
    rig.disk.failing.clear()
    assert errors(await read(rig, request(("t", 0, 0), ("t", 1, 0)))) == [E.KAFKA_STORAGE_ERROR, E.NONE]


# ---- sessions


async def test_a_session_carries_what_is_new(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    opened = await read(rig, request(("t", 0, 0), ("t", 1, 0), session_epoch=0))
    assert opened.session_id > 0
    assert len(partition_responses(opened)) == 2
    again = request(session_id=opened.session_id, session_epoch=1)
    assert partition_responses(await read(rig, again)) == []
    append(rig, b"a", index=1)
    again.session_epoch = 2
    assert [answer.partition_index for answer in partition_responses(await read(rig, again))] == [1]
    last = request(session_id=opened.session_id, session_epoch=3)
    last.forgotten_topics_data = [ForgottenTopic("t", partitions=[0, 1])]
    assert (await read(rig, last)).session_id == 0
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), last)
    assert refused.value.error is E.FETCH_SESSION_ID_NOT_FOUND
    told = fetch.refuse(rig.context(1, VERSION), last, refused.value.error, None)
    assert (told.error_code, told.responses) == (E.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_before_version_seven_there_are_no_sessions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert (await read(rig, request(("t", 0, 0), session_epoch=0), 6)).session_id == 0
    assert len(rig.services.fetch_sessions) == 0
