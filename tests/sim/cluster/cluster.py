"""All hosts of a run, and what is known about them together: who is up, who has lost data, what went wrong."""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from odradek.protocol.errors import Refusal
from tests.sim.cluster.host import Machine
from tests.sim.cluster.node_config import WATERMARKS
from tests.sim.environment.clock import SimClock
from tests.sim.environment.disk import Detached, DiskWatcher
from tests.sim.environment.loop import SimLoop
from tests.sim.options.run_options import KILL, Options
from tests.sim.watchers.commit_delays import GateKeeper
from tests.sim.world import PORT

if TYPE_CHECKING:
    from tests.sim.watchers.monitor import Monitor


class Cluster:
    """One to five machines."""

    def __init__(self, loop: SimLoop, rng: Random, options: Options) -> None:
        self.loop = loop
        self.rng = rng
        self.options = options
        self.gates = GateKeeper(loop)
        self.clients_clock = SimClock(loop)
        self.monitor: Monitor | None = None
        self.violations: list[str] = []
        self.died_at: dict[str, int] = {}
        self.downtime_ms = 0
        self.counters: dict[str, int] = {}
        self.machines = [Machine(self, number) for number in range(1, options.brokers + 1)]
        for machine, drift in zip(self.machines, options.clock_drifts, strict=False):
            machine.clock.drift = drift
        self._suspects: dict[int, None] = {}

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def machine(self, number: int) -> Machine:
        return self.machines[number - 1]

    @property
    def only(self) -> Machine:
        """The machine of a run of one broker."""
        assert len(self.machines) == 1
        return self.machines[0]

    @property
    def remaining(self) -> list[Machine]:
        """Those that are not gone for ever."""
        return [machine for machine in self.machines if not machine.gone]

    def address_of(self, number: int) -> tuple[str, int]:
        return self.machine(number).host, PORT

    # -- all at once

    async def start(self) -> bool:
        """Start all machines that are not gone; True when all are up."""
        tasks = [self.loop.create_task(machine.start(), name=f"start {machine.host}") for machine in self.remaining]
        return all([await task for task in tasks])

    async def stop(self) -> None:
        """Stop all, one after another and each cleanly; the last ones may have nobody left to ask."""
        tasks = [self.loop.create_task(machine.stop(), name=f"stop {machine.host}") for machine in self.remaining]
        for task in tasks:
            await task

    async def wait_up(self, seconds: float) -> None:
        """Until every machine that is not gone is up. Raises TimeoutError."""
        for machine in self.remaining:
            await asyncio.wait_for(machine.up.wait(), seconds)

    def disarm(self) -> None:
        for machine in self.machines:
            machine.disarm()

    # -- what machines report

    def watchers_of(self, machine: Machine) -> list[DiskWatcher]:
        return [] if self.monitor is None else [self.monitor.watcher(machine.number, machine.medium)]

    def came_up(self, machine: Machine) -> None:
        if self.monitor is not None and machine.node is not None:
            self.violations.extend(
                self.monitor.differences(machine.number, machine.name, machine.node.broker.partitions)
            )

    def before_crash(self, machine: Machine) -> None:
        if self.monitor is not None:
            self.monitor.before_crash(machine.number)

    def comes_back(self, machine: Machine) -> None:
        if self.monitor is not None:
            self.monitor.reload(machine.number, machine.medium)

    def lost_data(self, machine: Machine) -> None:
        self._suspects[machine.number] = None
        machine.watermarks_at_loss = machine.medium.entry(WATERMARKS)
        self.count("un-synced data lost")
        if self.monitor is not None:
            self.monitor.lost_data(machine.number, machine.medium)
        if self.options.lossy:
            self.gates.forget()

    def disk_refused(self, machine: Machine) -> None:
        """Nobody can say what of its data is on its disk, and it vouches for nothing of it."""
        self._suspects[machine.number] = None

    def disk_may_refuse(self, machine: Machine) -> bool:
        """Together with another one that has lost data, or had something refused, it would leave nobody who vouches for what was in sync."""
        options = self.options
        allowed = options.brokers == 1 or options.flush or self._others_are_whole(machine)
        if not allowed:
            self.count("loss withheld by the fault model")
        return allowed

    def may_lose_data(self, machine: Machine) -> bool:
        """The fault model: one broker at a time, unless everything is flushed before it is acknowledged.

        Who has lost data, or whose disk has refused something, counts until it is in sync again with all partitions that are placed on it.
        """
        options = self.options
        if options.brokers == 1:
            return options.durability != KILL
        if options.flush:
            return True
        if options.durability == KILL:
            return False
        return self._others_are_whole(machine)

    def may_stay_away(self, machine: Machine) -> bool:
        """Whether it may be lost for ever: together with one that has lost data and is not in sync again that would be too many."""
        return self.options.flush or self._others_are_whole(machine)

    def _others_are_whole(self, machine: Machine) -> bool:
        for number in list(self._suspects):
            if self._is_whole(number):
                del self._suspects[number]
        return all(number == machine.number for number in self._suspects)

    def _is_whole(self, number: int) -> bool:
        monitor = self.monitor
        assert monitor is not None
        states = monitor.metadata.partitions.values()
        machine = self.machine(number)
        # The others learn a little later that its disk has failed: until it is started again what they say of it means nothing.
        known_good = machine.up.is_set() and not machine.disk_failed
        return known_good and all(number in state.isr for state in states if number in state.replicas)

    # -- judgment

    def unexpected_failures(self) -> list[str]:
        """Exceptions that nobody took, except in a node after its death: there the disk and the network fail on purpose."""
        found = []
        for failure, text in zip(self.loop.failures, self.loop.describe_failures(), strict=True):
            died_at = self.died_at.get(failure["node"])
            if died_at is not None and failure["step"] >= died_at:
                continue
            error = failure.get("exception")
            if isinstance(error, Detached):
                continue
            if isinstance(error, Refusal) and failure["message"].startswith("Future exception was never retrieved"):
                continue  # an answer to a request whose node had died: nobody was left to hear it
            found.append(text)
        return found
