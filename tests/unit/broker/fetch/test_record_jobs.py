"""Long work on records: which jobs run at the same time."""

import asyncio

import pytest

from odradek.broker.fetch import record_jobs
from odradek.broker.fetch.record_jobs import JOBS_MAX, LARGE_JOB_BYTES, RecordJobs
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session
from odradek.protocol.errors import ErrorCode, Refusal


def session() -> Session:
    return Session(1, Listener("L", "127.0.0.1", 1, "localhost", 1), "127.0.0.1", 2)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_large_jobs_leave_a_place_for_short_ones() -> None:
    """A large job can take a minute in a codec. Two of them would delay all other checks and look-ups."""
    budget = ByteBudget(1 << 40)
    jobs = RecordJobs(budget)
    large = [asyncio.create_task(jobs.start(1, LARGE_JOB_BYTES + 1, session())) for _ in range(JOBS_MAX)]
    await turns()
    assert [task.done() for task in large] == [True] + [False] * (JOBS_MAX - 1)
    await asyncio.wait_for(jobs.start(1_000, LARGE_JOB_BYTES, session()), 10)
    jobs.end(LARGE_JOB_BYTES)
    jobs.end(LARGE_JOB_BYTES + 1)
    await turns()
    assert large[1].done()
    for _ in large[1:]:
        jobs.end(LARGE_JOB_BYTES + 1)
        await turns()
    assert budget.used_bytes == 0


async def test_large_job_whose_connection_ends_gives_its_place_to_the_next() -> None:
    jobs = RecordJobs(ByteBudget(1 << 40))
    await jobs.start(1, LARGE_JOB_BYTES + 1, session())
    short = [asyncio.create_task(jobs.start(1, 1, session())) for _ in range(JOBS_MAX)]
    ended = session()
    waiting = asyncio.create_task(jobs.start(1, LARGE_JOB_BYTES + 1, ended))
    following = asyncio.create_task(jobs.start(1, LARGE_JOB_BYTES + 1, session()))
    await turns()
    jobs.end(LARGE_JOB_BYTES + 1)  # `waiting` has the place of large jobs now, and waits for one of all
    await turns()
    ended.end()
    await turns()
    assert waiting.cancelled()
    for _ in short:
        jobs.end(1)
    await turns()
    assert following.done()


async def test_large_job_starts_when_the_budget_has_its_memory() -> None:
    """A batch of 130 KB can need 390 MiB, and requests may use the whole budget already."""
    budget = ByteBudget(10 * LARGE_JOB_BYTES)
    jobs = RecordJobs(budget)
    budget.reserve(9 * LARGE_JOB_BYTES)
    large = asyncio.create_task(jobs.start(1, 2 * LARGE_JOB_BYTES, session()))
    await asyncio.wait_for(jobs.start(1, LARGE_JOB_BYTES, session()), 10)
    jobs.end(LARGE_JOB_BYTES)
    await turns()
    assert not large.done()
    budget.release(LARGE_JOB_BYTES)
    await asyncio.wait_for(large, 10)
    assert budget.used_bytes == budget.limit_bytes


async def test_large_job_without_memory_is_refused_and_frees_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_jobs, "MEMORY_SECONDS_MAX", 0.01)
    budget = ByteBudget(2 * LARGE_JOB_BYTES)
    jobs = RecordJobs(budget)
    budget.reserve(LARGE_JOB_BYTES + 1)
    for _ in range(JOBS_MAX + 1):
        with pytest.raises(Refusal) as refused:
            await jobs.start(1, 4 * LARGE_JOB_BYTES, session())
        assert refused.value.error is ErrorCode.REQUEST_TIMED_OUT
    budget.release(1)
    await asyncio.wait_for(jobs.start(1, 4 * LARGE_JOB_BYTES, session()), 10)
    assert budget.used_bytes == 5 * LARGE_JOB_BYTES, "a job may need more than the whole budget"


async def test_look_up_waits_for_the_turn_of_its_connection() -> None:
    turn = asyncio.Event()
    client = session()

    async def next_turn(_: Session) -> None:
        await turn.wait()

    client.on_next_turn = next_turn
    look_ups = RecordJobs(ByteBudget(1 << 40)).look_ups(client)
    going_on = asyncio.create_task(look_ups.next_turn())
    await turns()
    assert not going_on.done()
    turn.set()
    await asyncio.wait_for(going_on, 10)
    client.end()
    with pytest.raises(asyncio.CancelledError):
        await look_ups.next_turn()
