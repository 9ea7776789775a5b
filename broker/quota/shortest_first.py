"""Limit of concurrent jobs that each need much of the event loop or of the memory."""

from asyncio import Future, get_running_loop


class ShortestFirst:
    """Limit of concurrent jobs.

    The shortest job starts first, so that one long job does not delay all short ones.
    """

    def __init__(self, concurrent_max: int, *, oldest_every: int = 0) -> None:
        """Permit `concurrent_max` jobs. If `oldest_every` is n, each n-th waiting job that starts is the oldest one.

        Then a stream of short jobs cannot delay a long one without end.
        """
        self._free = concurrent_max
        self._oldest_every = oldest_every
        self._started = 0
        self._waiting: dict[Future[None], int] = {}
        """Permissions to grant, and the sizes of their jobs, in the order of arrival."""

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return len(self._waiting)

    async def acquire(self, size: int) -> None:
        """Wait until a job of `size` units, such as records, may run. The caller calls `release` after the job."""
        if self._free:
            self._free -= 1
            return
        permit: Future[None] = get_running_loop().create_future()
        self._waiting[permit] = size
        try:
            await permit
        except BaseException:
            self._waiting.pop(permit, None)
            if permit.done() and not permit.cancelled():
                self.release()  # The task was cancelled after it obtained the permission.
            raise

    def release(self) -> None:
        """End a job that `acquire` permitted, and start the shortest waiting one, or the oldest if it is due."""
        waiting = self._waiting
        while waiting:
            self._started += 1
            oldest = self._oldest_every and self._started % self._oldest_every == 0
            permit = next(iter(waiting)) if oldest else min(waiting, key=waiting.__getitem__)
            del waiting[permit]
            if not permit.done():
                permit.set_result(None)
                return
        self._free += 1
