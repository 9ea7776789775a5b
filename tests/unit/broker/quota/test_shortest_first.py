"""Order of jobs that wait for their turn."""

import asyncio

import pytest

from odradek.broker.quota.shortest_first import ShortestFirst


async def start_order(jobs: ShortestFirst, sizes: list[int]) -> list[int]:
    """Let jobs of `sizes` wait while one job runs, then run one after the other. Return the sizes as they start."""
    started: list[int] = []

    async def run(size: int) -> None:
        await jobs.acquire(size)
        started.append(size)
        jobs.release()

    await jobs.acquire(1)
    tasks = [asyncio.ensure_future(run(size)) for size in sizes]
    await asyncio.sleep(0)
    assert len(jobs) == len(sizes)
    jobs.release()
    await asyncio.gather(*tasks)
    return started


async def test_shortest_job_starts_first_and_equal_jobs_keep_their_order() -> None:
    assert await start_order(ShortestFirst(1), [30, 10, 20, 5]) == [5, 10, 20, 30]


async def test_oldest_job_starts_after_a_bounded_number_of_shorter_jobs() -> None:
    order = await start_order(ShortestFirst(1, oldest_every=3), [1_000, 900, *range(1, 9)])
    assert order == [1, 2, 1_000, 3, 4, 900, 5, 6, 7, 8]


async def test_cancelled_job_is_removed_and_its_permission_goes_to_the_next() -> None:
    jobs = ShortestFirst(1)
    await jobs.acquire(1)
    waiting = [asyncio.ensure_future(jobs.acquire(size)) for size in (3, 2, 1)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert len(jobs) == 2
    jobs.release()
    waiting[2].cancel()  # it has the permission, but has not run since
    with pytest.raises(asyncio.CancelledError):
        await waiting[2]
    await waiting[0]
