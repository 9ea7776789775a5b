"""Apply changed broker registrations to the leader terms of this broker, in slices.

The registrations decide which followers may join an ISR. A broker that fails, stops or returns changes them for all
partitions. In one piece, the leader terms of 10,000 partitions took 30 ms.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.runtime.repeated_tasks import report
from odradek.runtime.rest import Pace
from odradek.runtime.tasks import Spawn

TERMS_PER_SLICE: Final = 256
"""Maximum leader terms that receive changed broker registrations in one slice. One takes about 7 us."""
REST_FACTOR: Final = 1
"""Length of the rest after a slice, as a multiple of the slice. The slices take at most half of the event loop."""
REST_S_MAX: Final = 0.01
"""Maximum seconds of one rest. A slice takes 2 ms, and longer only if other processes delay it."""
NAME: Final = "apply broker registrations"


class RegistrationUpdates:
    """Led partitions that have not received the newest broker registrations.

    A leader term that begins later has them from its begin.
    """

    def __init__(self, spawn: Spawn) -> None:
        """`spawn` starts the task of the slices."""
        self._spawn = spawn
        self._waiting: dict[Partition, None] = {}
        self._running = False

    def add(self, partitions: Iterable[Partition]) -> None:
        """Update partitions: one slice now, the remainder later. Partitions that wait already keep their place."""
        self._waiting.update(dict.fromkeys(partition for partition in partitions if _has_followers(partition)))
        self._update_slice()
        if self._waiting and not self._running:
            self._running = True
            self._spawn(self._update_remaining(), NAME)

    def _update_slice(self) -> None:
        for partition in list(islice(self._waiting, TERMS_PER_SLICE)):
            del self._waiting[partition]
            try:
                _update(partition)
            except Exception as error:  # noqa: BLE001  it concerns one partition, and the others go on
                report(error, self._spawn, NAME)

    async def _update_remaining(self) -> None:
        pace = Pace(REST_FACTOR, REST_S_MAX)
        try:
            while self._waiting:
                await pace.rest()
                self._update_slice()
        finally:
            self._running = False


def _has_followers(partition: Partition) -> bool:
    return partition.leader_term is not None and not partition.leader_term.replicas.alone


def _update(partition: Partition) -> None:
    term = partition.leader_term
    if term is not None:  # otherwise the term has ended while the partition waited
        term.register()
        term.update_high_watermark()
