"""Convergence after the faults: each partition has a leader, and the remaining replicas are in sync and equal."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.world import COMPACTED, TENANT_TOPICS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.checkers.metadata_log import PartitionState
    from tests.sim.history import Partition
    from tests.sim.world import World

POLL_SECONDS: Final = 0.2
FINDINGS_MAX: Final = 2


class Convergence:
    """Wait for convergence. `ends`: by partition, the log end offset of all remaining replicas when they were equal."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.ends: dict[Partition, int] = {}

    async def in_sync(self, patience: float) -> list[str]:
        """L1: return the partitions that are not in sync after `patience` seconds."""
        return [
            f"L1 {problem} {patience:.0f} s after the last fault"
            for problem in await self._wait(self._out_of_sync, patience)
        ]

    async def equal_ends(self, patience: float) -> list[str]:
        """L1, I10: as `in_sync`, and all remaining replicas have the same log end offset.

        The check runs before the last stop. During the stop, a coordinator may remove a transactional id after its
        followers have stopped; no client sees that before the followers have the record. All records below `ends` must
        survive the stop on every replica.
        """
        findings = await self._wait(lambda: self._out_of_sync() or self._different_ends(), patience)
        if not findings:
            self.ends = {place: max(ends.values()) for place, ends in self._ends()}
        return [f"I10 {problem} {patience:.0f} s after the last fault" for problem in findings]

    async def _wait(self, check: Callable[[], list[str]], patience: float) -> list[str]:
        loop = self._world.loop
        deadline = loop.time() + patience
        while loop.time() < deadline and check():
            await asyncio.sleep(POLL_SECONDS)
        return check()[:FINDINGS_MAX]

    # state

    @property
    def _remaining(self) -> set[int]:
        return {machine.number for machine in self._world.cluster.remaining}

    def _states(self) -> "Iterator[tuple[Partition, PartitionState]]":
        if self._world.options.brokers > 1:
            for place, state in self._world.monitor.metadata.partitions.items():
                if place[0] in {TOPIC, *TENANT_TOPICS, *COMPACTED}:
                    yield place, state

    def _out_of_sync(self) -> list[str]:
        remaining = self._remaining
        return [
            f"{place} has leader {state.leader}, ISR {state.isr} of {state.replicas}"
            for place, state in self._states()
            if state.leader not in remaining or not remaining.intersection(state.replicas) <= set(state.isr)
        ]

    def _ends(self) -> "Iterator[tuple[Partition, dict[int, int]]]":
        remaining, hosts = self._remaining, self._world.monitor.hosts
        for place, state in self._states():
            yield place, {number: hosts[number].log(place).end for number in state.replicas if number in remaining}

    def _different_ends(self) -> list[str]:
        return [f"{place}: its replicas end at {ends}" for place, ends in self._ends() if len(set(ends.values())) > 1]
