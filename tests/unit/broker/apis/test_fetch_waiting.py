"""Fetch requests that wait: for min_bytes, a watermark, a deadline or the next request."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import fetch
from odradek.broker.apis.fetch import WOKEN_PARTITIONS_MAX
from odradek.broker.fetch.read import FetchPass
from odradek.broker.requests.session import Session
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.records.metadata import PartitionChangeRecord, RemoveTopicRecord
from tests.support.data_rig import EIO, Rig, batch, outcome
from tests.support.fetching import (
    VERSION,
    append,
    end,
    errors,
    in_transaction,
    offsets,
    partition_responses,
    read,
    request,
    settle,
)

E = ErrorCode


async def park(rig: Rig, fetch_request: FetchRequest) -> "asyncio.Task[FetchResponse]":
    task = asyncio.ensure_future(read(rig, fetch_request))
    await settle()
    assert not task.done()
    return task


async def test_append_completes_a_parked_fetch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    task = await park(rig, request(("t", 0, 0), ("t", 1, 0), max_wait_ms=60_000))
    append(rig, b"a", index=1)
    assert [len(offsets(partition)) for partition in partition_responses(await task)] == [0, 1]
    assert len(rig.partition("t", 0).watermarks.fetch_watchers) == 0


async def test_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    size = len(batch(b"a"))
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, min_bytes=3 * size))
    append(rig, b"b")
    await settle()
    assert not task.done()
    append(rig, b"c")
    assert offsets(partition_responses(await task)[0]) == [0, 1, 2]


async def test_waiting_for_min_bytes_reads_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    passes: list[FetchPass] = []
    advance = FetchPass.advance

    def counted(fetch_pass: FetchPass) -> Any:
        passes.append(fetch_pass)
        return advance(fetch_pass)

    monkeypatch.setattr(FetchPass, "advance", counted)
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, min_bytes=10 * len(batch())))
    for _ in range(9):
        append(rig)
        await settle()
    assert len(passes) == 1
    append(rig)
    await task
    assert len(passes) == 2


async def test_read_uncommitted_fetch_waits_for_the_high_watermark(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    await settle()
    assert not task.done()
    rig.commits[0].advance()
    assert offsets(partition_responses(await task)[0]) == [0]


async def test_read_committed_fetch_waits_for_the_last_stable_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, isolation_level=1))
    in_transaction(rig, 7, 0)
    append(rig, b"plain")
    await settle()
    assert not task.done()  # two committed batches, both above the last stable offset
    end(rig, 7, commit=True)
    partition = partition_responses(await task)[0]
    assert offsets(partition) == [0, 1, 2]
    assert partition.aborted_transactions == []


async def test_max_wait_ends_a_parked_fetch_with_no_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    response = await read(rig, request(("t", 0, 0), max_wait_ms=1))
    assert (errors(response), partition_responses(response)[0].records) == ([E.NONE], b"")


async def test_next_request_of_the_connection_ends_a_parked_fetch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    rig.session.wake_waiting()
    assert partition_responses(await task)[0].records == b""
    assert rig.session._waiting == {}
    assert len(rig.partition().watermarks.fetch_watchers) == 0


async def test_append_before_stage_two_completes_the_fetch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    waiting = fetch.handle(rig.context(1, VERSION), request(("t", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    assert offsets(partition_responses(await asyncio.wait_for(outcome(waiting), 5))[0]) == [0]


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("cold", [False, True])
async def test_next_request_before_the_fetch_is_parked_ends_it(tmp_path: Path, cold: bool) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"x", index=1)
    rows = [("t", 0, 0)]
    if cold:
        rig.disk.failing["cold"] = 0
        rows.append(("t", 1, 0))
    fetch_request = request(*rows, max_wait_ms=60_000, min_bytes=2 * len(batch()))
    waiting = fetch.handle(rig.context(1, VERSION), fetch_request)
    rig.session.wake_waiting()
    partitions = partition_responses(await asyncio.wait_for(outcome(waiting), 5))
    assert [len(offsets(partition)) for partition in partitions] == [0, 1][: len(rows)]


async def test_completed_fetch_leaves_no_entry_in_its_session(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    await task
    assert rig.session._waiting == {}


@pytest.mark.parametrize("loss", ["leadership", "disk", "topic"])
async def test_lost_partition_ends_a_parked_fetch(tmp_path: Path, loss: str) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(1, 2))
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, leader_epoch=0))
    if loss == "leadership":
        rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    elif loss == "disk":
        rig.partition().take_offline(OSError(EIO, "injected"))
    else:
        rig.play(RemoveTopicRecord(topic_id=topic_id))
    expected = {
        "leadership": E.FENCED_LEADER_EPOCH,
        "disk": E.KAFKA_STORAGE_ERROR,
        "topic": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert errors(await task) == [expected[loss]]


async def test_unknown_partition_beside_a_known_one_does_not_end_the_wait_other_errors_do(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), ("nothing", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    assert errors(await task) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    for rows, error in (([("nothing", 0, 0)], E.UNKNOWN_TOPIC_OR_PARTITION), ([("t", 0, 50)], E.OFFSET_OUT_OF_RANGE)):
        response = await asyncio.wait_for(read(rig, request(*rows, max_wait_ms=60_000)), 5)
        assert errors(response) == [error]


@pytest.mark.parametrize("partitions", [WOKEN_PARTITIONS_MAX, WOKEN_PARTITIONS_MAX + 1])
async def test_woken_fetches_of_many_partitions_wait_for_their_turns(tmp_path: Path, partitions: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", partitions)
    waiting: list[asyncio.Future[None]] = []

    async def next_turn(_: Session) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]

    rig.session.on_next_turn = next_turn
    rows = [("t", index, 0) for index in range(partitions)]
    tasks = [await park(rig, request(*rows, max_wait_ms=60_000)) for _ in range(3)]
    append(rig, b"a")
    await settle()
    has_turns = partitions > WOKEN_PARTITIONS_MAX
    assert [task.done() for task in tasks] == [not has_turns] * len(tasks)
    assert len(waiting) == has_turns * len(tasks)
    for number, turn in enumerate(waiting, 1):
        turn.set_result(None)
        await settle()
        assert sum(task.done() for task in tasks) == number
    for response in await asyncio.gather(*tasks):
        assert offsets(partition_responses(response)[0]) == [0]


async def test_fetch_whose_connection_ends_before_its_turn_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", WOKEN_PARTITIONS_MAX + 1)

    async def next_turn(session: Session) -> None:
        session.end()

    rig.session.on_next_turn = next_turn
    rows = [("t", index, 0) for index in range(WOKEN_PARTITIONS_MAX + 1)]
    task = await park(rig, request(*rows, max_wait_ms=60_000))
    append(rig, b"a")
    assert partition_responses(await task) == []
