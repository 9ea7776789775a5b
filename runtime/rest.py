"""Rests between the slices of a long job, so that the event loop serves requests meanwhile.

A turn of the event loop alone is not enough. A request of a client takes several turns on several brokers, and would
wait for a slice in each of them.
"""

from asyncio import get_running_loop, sleep
from math import inf


class Pace:
    """Rests of one job. Each takes `factor` times as long as the work since the previous one, and at most `longest_s`.

    The clock of the event loop measures the work. If other processes interrupt a slice, it counts as longer. In a
    simulation, work takes nearly no time, and neither do the rests.
    """

    def __init__(self, factor: float, longest_s: float = inf) -> None:
        """`longest_s` is in seconds."""
        self._loop = get_running_loop()
        self._factor = factor
        self._longest_s = longest_s
        self.resume()

    def resume(self) -> None:
        """Begin to measure the work of the next slice: the job has waited for something else."""
        self._resumed_s = self._loop.time()

    async def rest(self, factor: float | None = None) -> None:
        """Let other tasks run, for `factor` times the work since the previous rest, or since `resume`.

        `factor` replaces that of the job for this rest.
        """
        work_s = self._loop.time() - self._resumed_s
        await sleep(min(work_s * (self._factor if factor is None else factor), self._longest_s))
        self.resume()
