"""The threads of a simulated disk: a bounded pool that all operations share, and views with a thread of their own."""

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.simulation.environment.disk import SimDisk, SimFile
    from odradek.simulation.environment.loop import SimLoop


class IoThreads:
    """Bounded pool of threads, as the times at which each thread becomes free. Operations start in the order of calls.

    An operation that finds all threads busy waits for the first that becomes free.
    """

    def __init__(self, loop: "SimLoop", threads: int) -> None:
        self._loop = loop
        self._free_at = [0.0] * threads
        self._slow_until = 0.0
        self.on_delayed: Callable[[], object] | None = None
        """Called when an operation waits for a thread that a slow operation occupies."""

    def occupy(self, seconds: float) -> float:
        """Return the seconds until the end of an operation that needs a thread for `seconds`."""
        now = self._loop.time()
        if now < min(self._free_at[0], self._slow_until) and self.on_delayed is not None:
            self.on_delayed()
        end = max(now, self._free_at[0]) + seconds
        heapq.heapreplace(self._free_at, end)
        return end - now

    def occupy_all(self, seconds: float) -> None:
        """Let every thread run a slow operation that ends in `seconds`, or later if it is busy for longer."""
        until = self._loop.time() + seconds
        self._slow_until = max(until, self._slow_until)
        self._free_at = sorted(max(until, free_at) for free_at in self._free_at)


class OwnThreadDisk:
    """View of a `SimDisk` whose operations have a thread of their own. Everything else is shared."""

    def __init__(self, disk: "SimDisk", threads: IoThreads) -> None:
        self._disk = disk
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool) -> "SimFile":
        return self._disk.open_with(self._threads, path, create=create)

    def check_space(self, path: str, size: int) -> None:
        """Permit all appends: the metadata log may use the reserve."""

    async def sync_directory(self, path: str) -> None:
        await self._disk.sync_directory_with(self._threads, path)

    async def replace_file(self, path: str, data: bytes) -> None:
        await self._disk.replace_file_with(self._threads, path, data)
