"""Run long work on the records of single batches: checks of produced batches, and look-ups by timestamp.

Short work runs within the handler. Work of more than one slice continues here: a few jobs at a time, with a turn of
the event loop after each slice, and codecs in threads.
"""

from asyncio import CancelledError, current_task, sleep, timeout
from contextlib import ExitStack
from typing import Any, Final

from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.broker.requests.session import Session
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.record_checks import RecordCheckPending
from odradek.storage.disk.port import Disk
from odradek.storage.log.timestamp_tables import TimestampTables
from odradek.storage.log.timestamps import LookUps

JOBS_MAX: Final = 2
"""Maximum concurrent jobs per broker. Each occupies the event loop for about 1 ms per turn, and holds one decompressed
batch: at most 32 times max.message.bytes."""
LARGE_JOB_BYTES: Final = 16 * 1024 * 1024
"""Memory of a job above which it is large. One large job runs at a time, so that short ones have a place. It waits for
memory of the byte budget; short jobs do not, and may exceed the budget."""
MEMORY_SECONDS_MAX: Final = 5.0
"""Maximum seconds for which a large job waits for memory of the byte budget."""
OLDEST_EVERY: Final = 4
"""Interval in started jobs after which the oldest waiting job starts, and not the shortest. A client with many short
jobs can then delay a long job only by a bounded number of jobs."""


class SessionLookUps:
    """Look-ups by timestamp of one connection. They implement `odradek.storage.log.timestamps.LookUps`."""

    def __init__(self, jobs: "RecordJobs", session: Session) -> None:
        self.tables = jobs.tables
        self._jobs = jobs
        self._session = session

    async def next_turn(self) -> None:
        """Wait for the next turn of the connection.

        If the connection ends meanwhile, the current task is cancelled, as in `RecordJobs.start`.
        """
        await self._session.next_turn()
        if self._session.closed:
            raise CancelledError

    async def start(self, records: int, memory_bytes: int) -> None:
        """Wait until a batch with `records` records may be decoded, and reserve its memory."""
        await self._jobs.start(records, memory_bytes, self._session)

    def end(self, memory_bytes: int) -> None:
        """End the work that `start` permitted."""
        self._jobs.end(memory_bytes)


class RecordJobs:
    """The long work on records of one broker. Mostly the job with the fewest records starts first (OLDEST_EVERY)."""

    def __init__(self, budget: ByteBudget) -> None:
        self.tables = TimestampTables()
        self._budget = budget
        self._turns = ShortestFirst(JOBS_MAX, oldest_every=OLDEST_EVERY)
        self._large = ShortestFirst(1, oldest_every=OLDEST_EVERY)

    async def start(self, records: int, memory_bytes: int, session: Session) -> None:
        """Wait until a job on `records` records may run, and reserve its memory. The caller calls `end` after the job.

        If the connection ends meanwhile, the current task is cancelled: a client that reconnects must not add jobs.

        A large job waits until its memory is free in the byte budget, or half of the budget if the job needs more.
        Raise Refusal(REQUEST_TIMED_OUT) if that takes longer than MEMORY_SECONDS_MAX.
        """
        task = current_task()
        assert task is not None
        if session.closed:
            raise CancelledError
        cancel_no_more = session.on_end(task.cancel)
        is_large = memory_bytes > LARGE_JOB_BYTES
        try:
            with ExitStack() as permits:
                if is_large:
                    await self._large.acquire(records)
                    permits.callback(self._large.release)
                await self._turns.acquire(records)
                permits.callback(self._turns.release)
                if is_large:
                    await self._await_memory(memory_bytes)
                permits.pop_all()
        finally:
            cancel_no_more()
        self._budget.reserve(memory_bytes)

    async def _await_memory(self, memory_bytes: int) -> None:
        budget = self._budget
        try:
            async with timeout(MEMORY_SECONDS_MAX):
                # The memory is the worst case for a batch of this size. A small budget must not refuse each such batch.
                await budget.until_free(min(memory_bytes, budget.limit_bytes // 2))
        except TimeoutError as error:
            raise Refusal(
                ErrorCode.REQUEST_TIMED_OUT, "The memory for requests is exhausted; send smaller batches, or retry"
            ) from error

    def end(self, memory_bytes: int) -> None:
        """End a job that `start` permitted."""
        self._budget.release(memory_bytes)
        self._turns.release()
        if memory_bytes > LARGE_JOB_BYTES:
            self._large.release()

    def look_ups(self, session: Session) -> LookUps:
        """Return the permission of one connection to look up timestamps (ListOffsets)."""
        return SessionLookUps(self, session)

    async def complete_check(self, pending: RecordCheckPending, disk: Disk, session: Session) -> Any:
        """Complete the check of a produced batch. Return its result, or raise its Refusal."""
        await self.start(pending.record_count, pending.memory_bytes, session)
        try:
            work, request = pending.work, pending.first
            while True:
                if request is None:
                    await sleep(0)
                    request = work.send(None)
                    continue
                try:
                    result = await disk.in_thread(request)
                except Exception as error:  # noqa: BLE001  the check decides what an error of its codec means
                    request = work.throw(error)
                else:
                    request = work.send(result)
        except StopIteration as stop:
            return stop.value
        finally:
            self.end(pending.memory_bytes)
