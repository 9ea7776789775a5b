"""Fetch requests of many partitions: slices between turns of the event loop, order, charges and waits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import fetch
from odradek.broker.fetch.read import FetchPass
from odradek.broker.fetch.requested import PARTITIONS_PER_TURN, READING_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, ForgottenTopic
from tests.support.data_rig import Rig, batch, outcome
from tests.support.fetching import VERSION, append, errors, partition_responses, request

COUNT = 3 * PARTITIONS_PER_TURN + 1
WAIT_SECONDS_MAX = 30.0


class Turns:
    """Counts the partitions that fetches read in each turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = [0]
        advance = FetchPass.advance

        def counted(fetch_pass: FetchPass) -> Any:
            before = fetch_pass._next
            result = advance(fetch_pass)
            self.read[-1] += fetch_pass._next - before
            return result

        monkeypatch.setattr(FetchPass, "advance", counted)

    async def until_done(self, task: "asyncio.Task[FetchResponse]") -> FetchResponse:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not task.done():
                self.read.append(0)
                await asyncio.sleep(0)
        return task.result()

    async def until_read(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while sum(self.read) < count:
                self.read.append(0)
                await asyncio.sleep(0)


def start(rig: Rig, fetch_request: FetchRequest) -> "asyncio.Task[FetchResponse]":
    return asyncio.ensure_future(outcome(fetch.handle(rig.context(1, VERSION), fetch_request)))


def of_all(**options: Any) -> FetchRequest:
    return request(*(("t", index, 0) for index in range(COUNT)), **options)


async def test_fetch_of_many_partitions_reads_a_bounded_number_per_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    append(rig, b"a", index=COUNT - 1)
    turns = Turns(monkeypatch)
    response = await turns.until_done(start(rig, of_all()))
    partitions = partition_responses(response)
    assert [partition.partition_index for partition in partitions] == list(range(COUNT))
    assert [len(response.responses), errors(response)] == [1, [ErrorCode.NONE] * COUNT]
    assert [bool(partition.records) for partition in partitions] == [False] * (COUNT - 1) + [True]
    assert sum(turns.read) == COUNT
    assert max(turns.read) <= PARTITIONS_PER_TURN


async def test_incremental_fetch_of_a_large_session_reads_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    turns = Turns(monkeypatch)
    opened = await turns.until_done(start(rig, of_all(session_epoch=0)))
    assert (opened.session_id > 0, len(partition_responses(opened))) == (True, COUNT)
    append(rig, b"a", index=COUNT - 1)
    append(rig, b"b", index=0)
    changed = await turns.until_done(start(rig, request(session_id=opened.session_id, session_epoch=1)))
    assert [partition.partition_index for partition in partition_responses(changed)] == [0, COUNT - 1]
    assert max(turns.read) <= PARTITIONS_PER_TURN


async def test_partitions_that_leave_a_session_are_found_in_slices(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    opened = await start(rig, of_all(session_epoch=0))
    leaving = request(session_id=opened.session_id, session_epoch=1)
    leaving.forgotten_topics_data = [ForgottenTopic("t", partitions=list(range(1, 50 * COUNT)))]
    append(rig, b"a", index=0)
    append(rig, b"a", index=1)
    response = await start(rig, leaving)
    assert [partition.partition_index for partition in partition_responses(response)] == [0]
    assert rig.services.fetch_sessions.partitions == 1


async def test_append_during_a_pass_of_many_turns_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch has read partition 0 when a record is appended to it. It is not parked for 60 s."""
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    turns = Turns(monkeypatch)
    task = start(rig, of_all(max_wait_ms=60_000))
    await turns.until_read(PARTITIONS_PER_TURN)
    append(rig, b"a", index=0)
    response = await turns.until_done(task)
    assert [partition.partition_index for partition in partition_responses(response) if partition.records] == [0]
    assert len(rig.partition("t", 1).watermarks.fetch_watchers) == 0


async def test_parked_fetch_of_many_partitions_holds_no_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    append(rig, b"a", index=1)
    charges: list[int] = []
    rig.session.on_charge = charges.append
    turns = Turns(monkeypatch)
    size = len(batch(b"a"))
    task = start(rig, of_all(max_wait_ms=60_000, min_bytes=2 * size))
    await turns.until_read(COUNT)
    while not rig.partition("t", COUNT - 1).watermarks.fetch_watchers:
        await asyncio.sleep(0)
    for _ in range(10):  # until the objects of the pass are released
        await asyncio.sleep(0)
    assert (charges[0], sum(charges)) == (READING_BYTES * COUNT, 0)
    parked = len(charges)
    append(rig, b"a", index=2)
    response = await turns.until_done(task)
    assert [partition.partition_index for partition in partition_responses(response) if partition.records] == [1, 2]
    assert sum(charges[parked:]) == 2 * size + READING_BYTES * COUNT, "until the connection counts the response"
    assert max(turns.read) <= PARTITIONS_PER_TURN


async def test_end_of_the_connection_ends_a_parked_fetch_without_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", COUNT)
    turns = Turns(monkeypatch)
    task = start(rig, of_all(max_wait_ms=60_000, min_bytes=1))
    await turns.until_read(COUNT)
    while not rig.partition("t", COUNT - 1).watermarks.fetch_watchers:
        await asyncio.sleep(0)
    charges: list[int] = []
    rig.session.on_charge = charges.append
    rig.session.end()
    response = await task
    assert partition_responses(response) == []
    assert sum(turns.read) == COUNT
    assert max(charges, default=0) <= 0, "nothing is charged after the end"
