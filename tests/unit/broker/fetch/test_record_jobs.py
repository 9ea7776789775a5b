"""Long work on records: which jobs run at the same time."""

import asyncio

from odradek.broker.fetch.record_jobs import JOBS_MAX, LARGE_JOB_BYTES, RecordJobs
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session


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
