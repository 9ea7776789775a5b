"""A commit gate that lags: the high watermark stays behind the log end for a drawn time, as if followers were slow.

What was once committed stays so: after a restart the watermark may lag again, but never below what clients were told.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.history import Partition

if TYPE_CHECKING:
    from tests.sim.environment.loop import SimLoop


class GateKeeper:
    """Makes the gates of all lives of a node and knows how far each partition is committed."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self._committed: dict[Partition, int] = {}
        self._held_until: dict[Partition, float] = {}

    def committed(self, partition: Partition) -> int:
        return self._committed.get(partition, 0)

    def hold(self, partition: Partition, seconds: float) -> None:
        """Let the high watermark of the partition stand still for a while."""
        self._held_until[partition] = max(self._held_until.get(partition, 0.0), self._loop.time() + seconds)

    def release_all(self) -> None:
        self._held_until.clear()

    def forget(self) -> None:
        """A power cut without flushing may have taken what was committed."""
        self._committed.clear()

    def __call__(self, topic: str, partition: int, advance: Callable[[int], None]) -> "SimGate":
        return SimGate(self, (topic, partition), advance)

    def wait_seconds(self, partition: Partition) -> float:
        return max(0.0, self._held_until.get(partition, 0.0) - self._loop.time())

    def passed(self, partition: Partition, offset: int) -> None:
        self._committed[partition] = max(self.committed(partition), offset)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(seconds, callback)


class SimGate:
    """See `tests.support.held_commits.Gate`."""

    def __init__(self, keeper: GateKeeper, partition: Partition, advance: Callable[[int], None]) -> None:
        self._keeper = keeper
        self._partition = partition
        self._advance = advance
        self._offset = 0
        self._passed = -1
        self._closed = False

    def acknowledgeable(self, offset: int) -> None:
        self._offset = max(self._offset, offset)
        if self._keeper.wait_seconds(self._partition) > 0:
            self._pass(min(self._offset, self._keeper.committed(self._partition)))
            self._wait()
        else:
            self._pass(self._offset)

    def close(self) -> None:
        self._closed = True

    def _wait(self) -> None:
        self._keeper.later(self._keeper.wait_seconds(self._partition) + 0.001, self._release)

    def _release(self) -> None:
        if self._closed:
            return
        if self._keeper.wait_seconds(self._partition) > 0:
            self._wait()
        else:
            self._pass(self._offset)

    def _pass(self, offset: int) -> None:
        if offset > self._passed and not self._closed:
            self._passed = offset
            self._keeper.passed(self._partition, offset)
            self._advance(offset)
