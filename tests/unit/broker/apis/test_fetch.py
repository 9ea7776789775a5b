"""Fetch: reads, limits, errors per partition, memory budget and incremental fetch sessions."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
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
from tests.support.data_rig import EIO, Rig, batch, outcome
from tests.support.fetching import VERSION, append, errors, offsets, partition_responses, read, request, settle

E = ErrorCode


# ---- reads ----------------------------------------------------------------------------------------------------------


async def test_read_from_memory_is_complete_in_stage_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a", b"b")
    append(rig, b"c")
    response = fetch.handle(rig.context(1, VERSION), request(("t", 0, 1)))
    assert isinstance(response, FetchResponse)
    partition = partition_responses(response)[0]
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (3, 3, 0)
    assert offsets(partition) == [0, 2]  # whole batches: the first batch begins below offset 1
    assert partition.aborted_transactions is None


async def test_fetch_at_the_log_end_returns_the_high_watermark_and_no_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    partition = partition_responses(await read(rig, request(("t", 0, 1))))[0]
    assert (partition.error_code, partition.records, partition.high_watermark) == (0, b"", 1)


@pytest.mark.parametrize("offset", [-1, 2, 100])
async def test_fetch_outside_of_the_log_is_offset_out_of_range(tmp_path: Path, offset: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    partition = partition_responses(await read(rig, request(("t", 0, offset))))[0]
    assert (partition.error_code, partition.high_watermark, partition.log_start_offset) == (
        E.OFFSET_OUT_OF_RANGE,
        -1,
        -1,
    )


async def test_consumer_reads_nothing_above_the_high_watermark(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    append(rig, b"a")
    for offset in (0, 1):
        partition = partition_responses(await read(rig, request(("t", 0, offset))))[0]
        assert (partition.error_code, partition.records, partition.high_watermark) == (0, b"", 0)
    debug = partition_responses(await read(rig, request(("t", 0, 0), replica_id=-2)))[0]
    assert offsets(debug) == [0]


async def test_byte_limits_apply_except_to_the_first_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 3)
    size = len(batch(b"x" * 100))
    for index in range(3):
        for _ in range(3):
            append(rig, b"x" * 100, index=index)
    rows = ("t", 0, 0), ("t", 1, 0), ("t", 2, 0)

    async def read_counts(**limits: Any) -> list[int]:
        response = await read(rig, request(*rows, **limits))
        return [len(offsets(partition)) for partition in partition_responses(response)]

    assert await read_counts() == [3, 3, 3]
    assert await read_counts(partition_bytes=2 * size) == [2, 2, 2]
    assert await read_counts(max_bytes=4 * size) == [3, 1, 0]
    assert await read_counts(max_bytes=1) == [1, 0, 0]  # one whole batch, although it exceeds every limit
    assert await read_counts(partition_bytes=1) == [1, 0, 0]
    assert await read_counts(max_bytes=0, min_bytes=0) == [1, 0, 0]


async def test_fetch_max_bytes_of_the_broker_bounds_the_response(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fetch.max.bytes=1024")
    rig.topic("t")
    for _ in range(3):
        append(rig, b"x" * 600)
    fetch_request = request(("t", 0, 0), max_bytes=2**31 - 1, partition_bytes=2**31 - 1)
    assert len(offsets(partition_responses(await read(rig, fetch_request))[0])) == 1
    waiting_request = request(("t", 0, 2), max_bytes=2**31 - 1, min_bytes=2**31 - 1, max_wait_ms=60_000)
    append(rig, b"y" * 600)
    assert len(offsets(partition_responses(await read(rig, waiting_request))[0])) == 1, (
        "the request must not wait for more than fetch.max.bytes"
    )


async def test_each_partition_has_its_own_error(tmp_path: Path) -> None:
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


async def test_other_leader_epoch_is_refused_with_a_hint_to_the_leader(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    for epoch, error in ((0, E.FENCED_LEADER_EPOCH), (1, E.NONE), (2, E.UNKNOWN_LEADER_EPOCH), (-1, E.NONE)):
        fetch_request = request(("t", 0, 0), leader_epoch=epoch)
        assert errors(await read(rig, fetch_request)) == [error]
    fetch_request = request(("", 0, 0), leader_epoch=0)
    fetch_request.topics[0].topic_id = topic_id
    hinted = partition_responses(await read(rig, fetch_request, 16))[0]
    assert (hinted.current_leader.leader_id, hinted.current_leader.leader_epoch) == (1, 1)


async def test_fetch_from_version_13_on_names_topics_by_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a")
    fetch_request = request(("", 0, 0), ("", 0, 0))
    fetch_request.topics[0].topic_id, fetch_request.topics[1].topic_id = topic_id, UUID(int=999)
    response = await read(rig, fetch_request, 13)
    assert errors(response) == [E.NONE, E.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in response.responses] == [topic_id, UUID(int=999)]


async def test_unknown_topic_id_is_not_logged_as_a_denied_operation(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    fetch_request = request(("", 0, 0))
    fetch_request.topics[0].topic_id = UUID(int=999)
    denied: list[Any] = []
    context = rig.context(1, 13)
    context.authorizer = broker_context.Deny((AclOperation.READ, ""))
    context.audit = SimpleNamespace(denied=lambda _context, access: denied.append(access))
    assert errors(await outcome(fetch.handle(context, fetch_request))) == [E.UNKNOWN_TOPIC_ID]
    assert denied == []


async def test_diverging_epoch_is_returned_instead_of_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a", b"b")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    append(rig, b"c")
    matching = partition_responses(await read(rig, request(("t", 0, 2), fetched_epoch=0)))[0]
    assert (matching.diverging_epoch.epoch, offsets(matching)) == (-1, [2])
    beyond = partition_responses(await read(rig, request(("t", 0, 3), fetched_epoch=0)))[0]
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset, beyond.records) == (0, 2, b"")
    unknown = partition_responses(await read(rig, request(("t", 0, 1), fetched_epoch=7)))[0]
    assert unknown.error_code == E.OFFSET_OUT_OF_RANGE


async def test_leader_without_fetches_of_followers_makes_no_consumer_reset_its_offset(
    tmp_path: Path,
) -> None:
    """The leader was isolated. A consumer has read records above its log end from the leader after it."""
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    append(rig, b"a", b"b")
    term = rig.partition().leader_term
    assert term is not None
    session = SimpleNamespace(last_fetch_ms=rig.clock.monotonic_ms())
    term.replicas.followers[2].activity = session
    assert errors(await read(rig, request(("t", 0, 3)))) == [E.OFFSET_OUT_OF_RANGE]
    session.last_fetch_ms -= 1_001
    assert errors(await read(rig, request(("t", 0, 3)))) == [E.NOT_LEADER_OR_FOLLOWER]
    assert errors(await read(rig, request(("t", 0, -1)))) == [E.OFFSET_OUT_OF_RANGE]
    term.replicas.followers[2].activity = None
    assert errors(await read(rig, request(("t", 0, 3)))) == [E.NOT_LEADER_OR_FOLLOWER]
    assert errors(await read(rig, request(("t", 0, 0)))) == [E.NONE]


@pytest.mark.parametrize(("epoch", "error"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (0, E.UNKNOWN_LEADER_EPOCH)])
async def test_fetch_of_a_broker_that_is_no_replica_is_refused(tmp_path: Path, epoch: int, error: ErrorCode) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert errors(await read(rig, request(("t", 0, 0), replica_id=2, leader_epoch=epoch))) == [error]
    fetch_request = request(("", 0, 0), leader_epoch=epoch, replica_state=ReplicaState(2, 1))
    fetch_request.topics[0].topic_id = rig.partition().topic_id
    assert errors(await read(rig, fetch_request, 17)) == [error]


@pytest.mark.parametrize(("epoch", "error"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (0, E.UNKNOWN_LEADER_EPOCH)])
async def test_fetch_with_an_unregistered_replica_id_is_refused_before_anything_is_kept(
    tmp_path: Path, epoch: int, error: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", replicas=(1, 2))
    fetch_request = request(("", 0, 0), ("", 1, 0), leader_epoch=epoch, replica_state=ReplicaState(9, 1))
    fetch_request.max_wait_ms, fetch_request.session_epoch = 60_000, 0
    for topic in fetch_request.topics:
        topic.topic_id = rig.partition().topic_id
    async with asyncio.timeout(10):  # the fetch is not parked for 60 s
        response = await outcome(fetch.handle(rig.context(1, 17), fetch_request))
    assert errors(response) == [error, error]
    assert response.session_id == 0
    assert len(rig.sessions) == 0
    assert rig.contacts == [], "the failure detector learns nothing of it"
    await read(rig, request(("t", 0, 0), replica_id=2))
    assert rig.contacts == [2]


async def test_follower_fetch_needs_cluster_action_permission(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), request(("t", 0, 0), replica_id=2))
    assert refused.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    assert fetch.refuse(rig.context(1, 7), request(), E.CLUSTER_AUTHORIZATION_FAILED, None).error_code
    assert errors(fetch.refuse(rig.context(1, 6), request(("t", 0, 0)), E.UNKNOWN_SERVER_ERROR, None)) == [
        E.UNKNOWN_SERVER_ERROR
    ]


@pytest.mark.usefixtures("reads_from_file")
async def test_read_from_disk_completes_in_stage_two(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing["cold"] = 0
    response = await read(rig, request(("t", 0, 0), ("t", 1, 0)))
    assert [offsets(partition) for partition in partition_responses(response)] == [[0], [0]]


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("cold", [False, True])
async def test_response_shrinks_to_the_free_budget_but_holds_one_batch(tmp_path: Path, cold: bool) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for _ in range(20):
        append(rig, b"x" * 1_000)
    if cold:
        rig.disk.failing["cold"] = 0
    budget = rig.services.budget
    for free_bytes, expected in ((10**6, 20), (8 * 5_500, 5), (8 * 500, 1), (0, 1)):
        reserved_bytes = budget.limit_bytes - free_bytes
        budget.reserve(reserved_bytes)
        fetch_request = request(
            ("t", 0, 0), min_bytes=100_000 if free_bytes == 8 * 5_500 else 1, max_wait_ms=60_000 if free_bytes else 0
        )
        partition = partition_responses(await asyncio.wait_for(read(rig, fetch_request), 5))[0]
        assert len(offsets(partition)) == expected, free_bytes
        budget.release(reserved_bytes)
        await settle()
        assert budget.used_bytes == 0


@pytest.mark.usefixtures("reads_from_file")
async def test_disk_read_is_charged_while_it_runs_and_delays_the_next_request(tmp_path: Path) -> None:
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
    assert rig.services.budget.used_bytes == 0, "the budget of the read is released with the response"
    assert rig.session._waiting == {}


async def test_fetches_woken_together_share_the_free_budget(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    free_bytes = 8 * 30_000
    rig.services.budget.reserve(rig.services.budget.limit_bytes - free_bytes)
    rig.session.on_charge = rig.services.budget.reserve
    fetch_request = request(("t", 0, 0), max_wait_ms=60_000, min_bytes=20_000)
    tasks = [asyncio.ensure_future(outcome(fetch.handle(rig.context(1, VERSION), fetch_request))) for _ in range(30)]
    await settle()
    for _ in range(60):
        append(rig, b"x" * 1_000)
    sizes = [len(partition_responses(await asyncio.wait_for(task, 5))[0].records or b"") for task in tasks]
    assert sizes[0] > 20_000
    assert sum(sizes) < free_bytes


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("operation", ["read", "read_cold"])
async def test_failed_read_takes_the_partition_offline(tmp_path: Path, operation: str) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing.update({"cold": 0, operation: EIO})
    assert errors(await read(rig, request(("t", 0, 0)))) == [E.KAFKA_STORAGE_ERROR]
    rig.disk.failing.clear()
    assert errors(await read(rig, request(("t", 0, 0), ("t", 1, 0)))) == [E.KAFKA_STORAGE_ERROR, E.NONE]


# ---- sessions -------------------------------------------------------------------------------------------------------


async def test_incremental_fetch_session_returns_only_changed_partitions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    opened = await read(rig, request(("t", 0, 0), ("t", 1, 0), session_epoch=0))
    assert opened.session_id > 0
    assert len(partition_responses(opened)) == 2
    again = request(session_id=opened.session_id, session_epoch=1)
    assert partition_responses(await read(rig, again)) == []
    append(rig, b"a", index=1)
    again.session_epoch = 2
    assert [partition.partition_index for partition in partition_responses(await read(rig, again))] == [1]
    last = request(session_id=opened.session_id, session_epoch=3)
    last.forgotten_topics_data = [ForgottenTopic("t", partitions=[0, 1])]
    assert (await read(rig, last)).session_id == 0
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), last)
    assert refused.value.error is E.FETCH_SESSION_ID_NOT_FOUND
    refused_response = fetch.refuse(rig.context(1, VERSION), last, refused.value.error, None)
    assert (refused_response.error_code, refused_response.responses) == (E.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_fetch_before_v7_opens_no_session(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert (await read(rig, request(("t", 0, 0), session_epoch=0), 6)).session_id == 0
    assert len(rig.services.fetch_sessions) == 0
