"""Base of the scenarios: faults in an order that depends on the state of the cluster."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.metadata_log import NO_LEADER

if TYPE_CHECKING:
    from tests.sim.cluster.host import Machine
    from tests.sim.world import World

STEP_SECONDS_MAX: Final = 15.0
"""Maximum seconds for one step. If it takes longer, the next steps are left out."""
POLL_SECONDS: Final = 0.005


class Scenario:
    """Steps of one fault. Each waits for the effect of the previous one."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.loop = world.loop
        self.network = world.loop.network

    @property
    def controller(self) -> int:
        """The node that leads the metadata log, by its committed records, or NO_LEADER."""
        terms = self.world.monitor.metadata.terms
        return terms[max(terms)] if terms else NO_LEADER

    def separate(self, machine: "Machine", *others: "Machine") -> None:
        """Partition the network between a machine and others, until `join`."""
        for other in others:
            for source, destination in ((machine.host, other.host), (other.host, machine.host)):
                self.network.links.partition(source, destination, 4 * STEP_SECONDS_MAX)

    def join(self, machine: "Machine", *others: "Machine") -> None:
        """End the partitions between a machine and others."""
        for other in others:
            self.network.links.join(machine.host, other.host)

    async def until(
        self, condition: Callable[[], bool], *, seconds: float = STEP_SECONDS_MAX, poll_seconds: float = POLL_SECONDS
    ) -> bool:
        """Return True when the condition holds, or False after `seconds` or at the end of the workload."""
        deadline = self.loop.time() + seconds
        while not condition():
            if self.loop.time() >= deadline or self.world.stopping:
                return False
            await asyncio.sleep(poll_seconds)
        return True
