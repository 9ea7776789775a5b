"""Delays of the high watermark in runs of one broker: it lags behind the log end, as with slow followers.

The seed determines the delays. A committed offset stays committed: after a restart the high watermark may lag again,
but never below the offsets that clients received.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.history import Partition

if TYPE_CHECKING:
    from odradek.simulation.environment.loop import SimLoop


class CommitDelays:
    """Delays and committed offsets of all partitions, across all incarnations of a node."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self._committed: dict[Partition, int] = {}
        self._held_until: dict[Partition, float] = {}

    def committed(self, partition: Partition) -> int:
        return self._committed.get(partition, 0)

    def hold(self, partition: Partition, seconds: float) -> None:
        """Stop the high watermark of the partition for `seconds`."""
        self._held_until[partition] = max(self._held_until.get(partition, 0.0), self._loop.time() + seconds)

    def release_all(self) -> None:
        self._held_until.clear()

    def forget(self) -> None:
        """Forget all committed offsets: a power cut without flushing may have lost committed records."""
        self._committed.clear()

    def __call__(self, topic: str, partition: int, advance: Callable[[int], None]) -> "DelayedCommits":
        return DelayedCommits(self, (topic, partition), advance)

    def wait_seconds(self, partition: Partition) -> float:
        return max(0.0, self._held_until.get(partition, 0.0) - self._loop.time())

    def committed_up_to(self, partition: Partition, offset: int) -> None:
        self._committed[partition] = max(self.committed(partition), offset)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(seconds, callback)


class DelayedCommits:
    """Delay of one partition's high watermark; implements `tests.support.delayed_commits.CommitCondition`."""

    def __init__(self, delays: CommitDelays, partition: Partition, advance: Callable[[int], None]) -> None:
        self._delays = delays
        self._partition = partition
        self._advance = advance
        self._offset = 0
        self._delivered = -1
        self._closed = False

    def acknowledgeable(self, offset: int) -> None:
        self._offset = max(self._offset, offset)
        if self._delays.wait_seconds(self._partition) > 0:
            self._commit(min(self._offset, self._delays.committed(self._partition)))
            self._wait()
        else:
            self._commit(self._offset)

    def close(self) -> None:
        self._closed = True

    def _wait(self) -> None:
        self._delays.later(self._delays.wait_seconds(self._partition) + 0.001, self._release)

    def _release(self) -> None:
        if self._closed:
            return
        if self._delays.wait_seconds(self._partition) > 0:
            self._wait()
        else:
            self._commit(self._offset)

    def _commit(self, offset: int) -> None:
        if offset > self._delivered and not self._closed:
            self._delivered = offset
            self._delays.committed_up_to(self._partition, offset)
            self._advance(offset)
