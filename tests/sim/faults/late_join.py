"""A follower joins the ISR by a request from before its power failure.

1. A partition of the network separates a follower from the leader, and the follower leaves the ISR.
2. The partition ends. The follower catches up, and the leader requests to add it to the ISR.
3. The network delays this request. Meanwhile the power of the follower fails, which loses records of its log. It starts
   again, and cannot reach the leader.
4. The request arrives. The controller has to refuse it: the incarnation that caught up has ended.
5. The leader fails. A follower that has joined the ISR in step 4 is the first replica, so it becomes the leader.
"""

from typing import TYPE_CHECKING, Final

from odradek.simulation.environment.network import FrameFault
from tests.sim.checkers.metadata_log import NO_LEADER
from tests.sim.faults.fault import ALTER_PARTITION
from tests.sim.faults.scenario import Scenario
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from tests.sim.cluster.host import Machine
    from tests.sim.history import Partition

REQUEST_DELAY_SECONDS: Final = 4.0
"""Delay of the request: the follower starts again and is unfenced meanwhile, after its old session has expired."""
REQUESTS_HELD_MAX: Final = 100
"""The leader repeats a request whose connection is reset. All repetitions are delayed, too."""
LEADER_DOWNTIME_SECONDS: Final = 3.0
"""Longer than the session of the leader, so that the controller elects another one."""
FOLLOWER_DOWNTIME_SECONDS: Final = 0.05


class LateJoin(Scenario):
    """Steps of one fault of kind LATE_JOIN."""

    async def run(self, number: int) -> None:
        """Run the steps for a partition that `number` selects."""
        chosen = self._choose(number)
        if chosen is None:
            self.world.count("late join: no suitable partition")
            return
        place, leader, follower = chosen
        self.separate(leader, follower)
        shrunk = await self.until(lambda: follower.number not in self._isr(place))
        held = [
            FrameFault("hold_request", (ALTER_PARTITION,), delay=REQUEST_DELAY_SECONDS, source=leader.host)
            for _ in range(REQUESTS_HELD_MAX)
        ]
        if shrunk:
            self.network.faults += held
        self.join(leader, follower)
        try:
            if shrunk and await self.until(lambda: held[0].injected):
                await self._restart_and_deliver(place, leader, follower)
        finally:
            self.network.faults = [fault for fault in self.network.faults if fault not in held]
            self.join(leader, follower)

    async def _restart_and_deliver(self, place: "Partition", leader: "Machine", follower: "Machine") -> None:
        """Run the steps from the power failure of the follower on."""
        arrival = self.loop.time() + REQUEST_DELAY_SECONDS
        if not self.world.cluster.may_lose_data(follower):
            return
        self.separate(leader, follower)
        follower.crash(power=True, downtime=FOLLOWER_DOWNTIME_SECONDS)
        restarted = await self.until(follower.up.is_set)
        if not restarted or self.loop.time() >= arrival:
            self.world.count("late join: the follower started too late")
            return
        await self.until(lambda: self.loop.time() >= arrival)
        await self.until(lambda: follower.number in self._isr(place), seconds=1.0)
        self.world.count("late join: the request arrived after the restart of the follower")
        leader.crash(power=False, downtime=LEADER_DOWNTIME_SECONDS)

    def _choose(self, number: int) -> "tuple[Partition, Machine, Machine] | None":
        """Return a partition, its leader and the follower that becomes the next leader if both are in the ISR.

        None of them is the controller: its failure would end the delayed request.
        """
        world = self.world
        for index in range(world.options.partitions):
            place = (TOPIC, (number + index) % world.options.partitions)
            state = world.monitor.metadata.partitions.get(place)
            if state is None or state.leader == NO_LEADER or sorted(state.isr) != sorted(state.replicas):
                continue
            follower = next(replica for replica in state.replicas if replica != state.leader)
            if self.controller not in {state.leader, follower}:
                return place, world.cluster.machine(state.leader), world.cluster.machine(follower)
        return None

    def _isr(self, place: "Partition") -> tuple[int, ...]:
        state = self.world.monitor.metadata.partitions.get(place)
        return () if state is None else state.isr
