"""Limit of concurrent jobs that each need much of the event loop or of the memory."""

from asyncio import Future, get_running_loop
from heapq import heappop, heappush


class ShortestFirst:
    """Limit of concurrent jobs.

    The shortest job starts first, so that one long job does not delay all short ones.
    """

    def __init__(self, concurrent_max: int) -> None:
        self._free = concurrent_max
        self._waiting: list[tuple[int, int, Future[None]]] = []
        self._number = 0

    async def acquire(self, size: int) -> None:
        """Wait until a job of `size` units, such as records, may run. The caller calls `release` after the job."""
        if self._free:
            self._free -= 1
            return
        self._number += 1
        permit: Future[None] = get_running_loop().create_future()
        heappush(self._waiting, (size, self._number, permit))
        try:
            await permit
        except BaseException:
            if permit.done() and not permit.cancelled():
                self.release()  # The task was cancelled after it obtained the permission.
            raise

    def release(self) -> None:
        """End a job that `acquire` permitted, and start the shortest waiting one."""
        while self._waiting:
            _, _, permit = heappop(self._waiting)
            if not permit.done():
                permit.set_result(None)
                return
        self._free += 1
