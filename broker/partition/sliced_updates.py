"""Apply a change that concerns all partitions of this broker in slices.

- A broker that fails, stops or returns changes the registrations. They decide which followers may join an ISR. In one
  piece, the leader terms of 10,000 partitions took 30 ms.
- An operator changes a default of this broker or of all brokers. In one piece, the configurations of 10,000 topics took
  half a second.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.runtime.repeated_tasks import report
from odradek.runtime.rest import Pace
from odradek.runtime.tasks import Spawn

PARTITIONS_PER_SLICE: Final = 256
"""Maximum partitions that are updated in one slice. A leader term takes about 7 us, a configuration 20 us."""
REST_FACTOR: Final = 1
"""Length of the rest after a slice, as a multiple of the slice. The slices take at most half of the event loop."""
REST_S_MAX: Final = 0.01
"""Maximum seconds of one rest. A slice takes 2 to 5 ms, and longer only if other processes delay it."""


class SlicedUpdates:
    """Partitions that have not received the newest state of one kind."""

    def __init__(self, name: str, update: Callable[[Partition], None], spawn: Spawn) -> None:
        """`update` brings one partition into the newest state. `spawn` starts the task of the slices."""
        self._name = name
        self._update = update
        self._spawn = spawn
        self._waiting: dict[Partition, None] = {}
        self._running = False

    def add(self, partitions: Iterable[Partition]) -> None:
        """Update partitions: one slice now, the remainder later. Partitions that wait already keep their place."""
        self._waiting.update(dict.fromkeys(partitions))
        self._update_slice()
        if self._waiting and not self._running:
            self._running = True
            self._spawn(self._update_remaining(), self._name)

    def update_now(self, partition: Partition) -> None:
        """Update the partition now if it waits."""
        if partition in self._waiting:
            del self._waiting[partition]
            self._update(partition)

    def _update_slice(self) -> None:
        for partition in list(islice(self._waiting, PARTITIONS_PER_SLICE)):
            del self._waiting[partition]
            try:
                self._update(partition)
            except Exception as error:  # noqa: BLE001  it concerns one partition, and the others go on
                report(error, self._spawn, self._name)

    async def _update_remaining(self) -> None:
        pace = Pace(REST_FACTOR, REST_S_MAX)
        try:
            while self._waiting:
                await pace.rest()
                self._update_slice()
        finally:
            self._running = False
