"""Work that lasts: it is reported and goes on after an exception. Time is virtual."""

from __future__ import annotations

import asyncio

from odradek.runtime.repeated_tasks import PAUSE_FIRST_MS, PAUSE_MAX_MS, keep_running, repeat
from odradek.runtime.tasks import Tasks
from tests.support.fake_kafka import virtual_loop


class Worker:
    """Work that fails in its first `failures` runs. It keeps the start of each run, in ms of the loop."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts: list[int] = []
        self.reported: list[tuple[str, str]] = []
        self.tasks = Tasks(lambda name, exception: self.reported.append((name, str(exception))))

    async def work(self) -> None:
        self.starts.append(round(asyncio.get_running_loop().time() * 1_000))
        await asyncio.sleep(0)
        if len(self.starts) <= self.failures:
            raise ValueError(f"run {len(self.starts)}")

    @property
    def intervals(self) -> list[int]:
        return [later - earlier for earlier, later in zip(self.starts, self.starts[1:], strict=False)]


def test_kept_work_runs_again_after_pauses_that_double() -> None:
    worker = Worker(failures=3)

    async def main() -> None:
        await keep_running(worker.work, worker.tasks.spawn, "the work")

    with virtual_loop() as loop:
        loop.run_until_complete(main())
    assert worker.reported == [("the work", f"run {number}") for number in (1, 2, 3)]
    assert worker.intervals == [PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 4 * PAUSE_FIRST_MS]


def test_pause_of_kept_work_has_a_maximum() -> None:
    worker = Worker(failures=12)

    async def main() -> None:
        await keep_running(worker.work, worker.tasks.spawn, "the work")

    with virtual_loop() as loop:
        loop.run_until_complete(main())
    assert worker.intervals[-2:] == [PAUSE_MAX_MS, PAUSE_MAX_MS]


def test_repeated_work_goes_on_after_exceptions() -> None:
    worker = Worker(failures=2)

    async def main() -> None:
        worker.tasks.spawn(repeat(worker.work, 10, 50, worker.tasks.spawn, "job"), "job")
        while len(worker.starts) < 5:
            await asyncio.sleep(0.01)
        await worker.tasks.cancel_all()

    with virtual_loop() as loop:
        loop.run_until_complete(main())
    assert worker.intervals == [PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 50, 50]
    assert worker.reported == [("job", "run 1"), ("job", "run 2")]


def test_cancelled_work_does_not_run_again() -> None:
    worker = Worker(failures=10**6)

    async def main() -> None:
        worker.tasks.spawn(keep_running(worker.work, worker.tasks.spawn, "the work"), "the work")
        await asyncio.sleep(0)
        await worker.tasks.cancel_all()
        await asyncio.sleep(100)

    with virtual_loop() as loop:
        loop.run_until_complete(main())
    assert len(worker.starts) <= 1
