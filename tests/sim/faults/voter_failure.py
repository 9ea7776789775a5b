"""A voter of the metadata log fails right after its vote, and another voter requests its vote in the same epoch.

The cluster has three voters.

1. A partition of the network separates the leader of the metadata log from the other voters.
2. One of them becomes the leader of the next epoch by the vote of the other one.
3. That voter fails before it has a record of the epoch, and starts again. So does the former leader: otherwise it would
   go on to lead its own epoch. The partition now separates the new leader from both other voters.
4. The former leader does not know the epoch, so it requests votes in it. The voter has to refuse its second vote.
"""

from typing import TYPE_CHECKING, Final

from tests.sim.checkers.metadata_log import NO_LEADER
from tests.sim.faults.scenario import Scenario
from tests.sim.world import METADATA

if TYPE_CHECKING:
    from tests.sim.cluster.host import Machine

VOTER_DOWNTIME_SECONDS: Final = 0.05
ELECTION_POLL_SECONDS: Final = 0.0001
"""Shorter than the time in which the voter receives a record of the new leader: two messages of 0.1 ms at least."""


class VoterFailure(Scenario):
    """Steps of one fault of kind VOTER_FAILURE."""

    async def run(self) -> None:
        """Run the steps."""
        cluster, monitor = self.world.cluster, self.world.monitor
        if self.controller == NO_LEADER:
            return
        former = cluster.machine(self.controller)
        others = [machine for machine in cluster.machines if machine is not former]
        epoch = max(monitor.controllers)
        self.separate(former, *others)
        if await self.until(lambda: max(monitor.controllers) > epoch, poll_seconds=ELECTION_POLL_SECONDS):
            await self._elect_again(former, others)
        for machine in cluster.machines:
            self.join(machine, *(other for other in cluster.machines if other is not machine))

    async def _elect_again(self, former: "Machine", others: list["Machine"]) -> None:
        """Run the steps from the failure of the voter on, until both other voters have a record of another leader."""
        controllers = self.world.monitor.controllers
        epoch = max(controllers)
        leader = next((machine for machine in others if machine.number == controllers[epoch]), None)
        if leader is None:
            return
        voter = next(machine for machine in others if machine is not leader)
        for machine in (voter, former):
            machine.crash(power=False, downtime=VOTER_DOWNTIME_SECONDS)
        self.separate(leader, voter)
        self.join(former, voter)
        self.world.count("voter failure: a voter failed after its vote")
        await self.until(lambda: all(self._last_epoch(machine) >= epoch for machine in (former, voter)))

    def _last_epoch(self, machine: "Machine") -> int:
        """Return the epoch of the last record in the metadata log of the machine, or -1 without records."""
        log = self.world.monitor.hosts[machine.number].logs.get((METADATA, 0))
        return log.placed[-1].batch.leader_epoch if log is not None and log.placed else -1
