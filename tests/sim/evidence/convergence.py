"""When all is quiet among several brokers: every partition is led, who is not gone is in sync, and holds what the others hold."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.world import COMPACTED, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.checkers.metadata_log import PartitionState
    from tests.sim.history import Partition
    from tests.sim.world import World

LOOK_SECONDS: Final = 0.2
FINDINGS_MAX: Final = 2


class Rest:
    """`ends`: of each partition, up to where all replicas that are not gone held it when they were found level."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.ends: dict[Partition, int] = {}

    async def in_sync(self, patience: float) -> list[str]:
        """L1: what is not in order after so many seconds."""
        return [
            f"L1 {left} {patience:.0f} s after the last fault" for left in await self._wait(self._out_of_sync, patience)
        ]

    async def level(self, patience: float) -> list[str]:
        """L1, I10: as `in_sync`, and nothing is on one replica only.

        Asked before the last stop and not after it: a coordinator may forget an id while its followers are stopping already, and nobody
        is told before they have that record. What lies below `ends` must survive the stop on every one of them.
        """
        found = await self._wait(lambda: self._out_of_sync() or self._uneven(), patience)
        if not found:
            self.ends = {place: max(ends.values()) for place, ends in self._ends()}
        return [f"I10 {left} after {patience:.0f} s of rest" for left in found]

    async def _wait(self, look: Callable[[], list[str]], patience: float) -> list[str]:
        loop = self._world.loop
        deadline = loop.time() + patience
        while loop.time() < deadline and look():
            await asyncio.sleep(LOOK_SECONDS)
        return look()[:FINDINGS_MAX]

    # -- how things stand

    @property
    def _here(self) -> set[int]:
        return {machine.number for machine in self._world.cluster.remaining}

    def _states(self) -> "Iterator[tuple[Partition, PartitionState]]":
        if self._world.options.brokers > 1:
            for place, state in self._world.monitor.metadata.partitions.items():
                if place[0] in {TOPIC, *COMPACTED}:
                    yield place, state

    def _out_of_sync(self) -> list[str]:
        here = self._here
        return [
            f"{place} has leader {state.leader}, ISR {state.isr} of {state.replicas}"
            for place, state in self._states()
            if state.leader not in here or not here.intersection(state.replicas) <= set(state.isr)
        ]

    def _ends(self) -> "Iterator[tuple[Partition, dict[int, int]]]":
        here, hosts = self._here, self._world.monitor.hosts
        for place, state in self._states():
            yield place, {number: hosts[number].log(place).end for number in state.replicas if number in here}

    def _uneven(self) -> list[str]:
        return [f"{place}: its replicas end at {ends}" for place, ends in self._ends() if len(set(ends.values())) > 1]
