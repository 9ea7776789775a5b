"""All hosts of a run and the state that they share: running hosts, data losses, violations."""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from odradek.simulation.environment.clock import SimClock
from odradek.simulation.environment.disk import Detached, DiskWatcher
from odradek.simulation.environment.loop import SimLoop
from tests.sim.cluster.host import Machine
from tests.sim.cluster.node_config import WATERMARKS
from tests.sim.history import Partition
from tests.sim.options.run_options import KILL, Options
from tests.sim.watchers.acls import AclWatch
from tests.sim.watchers.commit_delays import CommitDelays
from tests.sim.world import PORT

if TYPE_CHECKING:
    from tests.sim.watchers.monitor import Monitor


class Cluster:
    """One to five machines."""

    def __init__(self, loop: SimLoop, rng: Random, options: Options) -> None:
        self.loop = loop
        self.rng = rng
        self.options = options
        self.commit_delays = CommitDelays(loop)
        self.clients_clock = SimClock(loop)
        self.monitor: Monitor | None = None
        self.violations: list[str] = []
        self.failed_at: dict[str, int] = {}
        self.downtime_ms = 0
        self.counters: dict[str, int] = {}
        self.acls = None if options.security is None else AclWatch()
        self.machines = [Machine(self, number) for number in range(1, options.brokers + 1)]
        for machine, drift in zip(self.machines, options.clock_drifts, strict=False):
            machine.clock.drift = drift
        self._suspects: dict[int, None] = {}
        self._damaged: dict[int, None] = {}
        """Suspects that lost records for another reason than a missing flush."""

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def machine(self, number: int) -> Machine:
        return self.machines[number - 1]

    @property
    def only(self) -> Machine:
        """Machine of a run with one broker."""
        assert len(self.machines) == 1
        return self.machines[0]

    @property
    def remaining(self) -> list[Machine]:
        """Machines that were not removed permanently."""
        return [machine for machine in self.machines if not machine.gone]

    def address_of(self, number: int) -> tuple[str, int]:
        return self.machine(number).host, PORT

    # all machines

    async def start(self) -> bool:
        """Start all remaining machines in parallel. Return True if all are up."""
        tasks = [self.loop.create_task(machine.start(), name=f"start {machine.host}") for machine in self.remaining]
        return all([await task for task in tasks])

    async def stop(self) -> None:
        """Stop all remaining machines cleanly, in parallel. The last ones may find no controller."""
        tasks = [self.loop.create_task(machine.stop(), name=f"stop {machine.host}") for machine in self.remaining]
        for task in tasks:
            await task

    async def wait_up(self, seconds: float) -> None:
        """Wait until every remaining machine is up. Raise TimeoutError after `seconds` for one machine."""
        for machine in self.remaining:
            await asyncio.wait_for(machine.up.wait(), seconds)

    def disarm(self) -> None:
        for machine in self.machines:
            machine.disarm()

    # events of machines

    def watchers_of(self, machine: Machine) -> list[DiskWatcher]:
        return [] if self.monitor is None else [self.monitor.watcher(machine.number, machine.medium)]

    def came_up(self, machine: Machine) -> None:
        if self.monitor is not None and machine.node is not None:
            self.monitor.clear_losses()
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
        self.count("un-synced data lost")
        self._note_loss(machine)

    def log_damaged(self, machine: Machine) -> None:
        self.count("log damaged")
        self._damaged[machine.number] = None
        self._note_loss(machine)

    def _note_loss(self, machine: Machine) -> None:
        self._suspects[machine.number] = None
        machine.watermarks_at_loss = machine.medium.entry(WATERMARKS)
        if self.monitor is not None:
            self.monitor.lost_data(machine.number, machine.medium)
        if self.options.lossy:
            self.commit_delays.forget()

    def disk_failed_operation(self, machine: Machine) -> None:
        """Mark the machine as suspect: after a failed disk operation, its data may be incomplete."""
        self._suspects[machine.number] = None

    def disk_may_fail(self, machine: Machine) -> bool:
        """Return True if a disk operation of the machine may fail now.

        Two suspect machines together could lose records that were in sync, which is outside the guarantee.
        """
        options = self.options
        allowed = options.brokers == 1 or self._others_keep_their_records(machine)
        if not allowed:
            self.count("loss withheld by the fault model")
        return allowed

    def may_lose_data(self, machine: Machine) -> bool:
        """Return True if the machine may lose unflushed data now: one broker at a time, unless all data is flushed
        first.

        A broker that lost data, or whose disk failed an operation, is suspect until it is in sync again with all its
        partitions.
        """
        options = self.options
        if options.brokers == 1:
            return options.durability != KILL
        if options.durability == KILL:
            return False
        return self._others_keep_their_records(machine)

    def may_be_damaged(self, machine: Machine) -> bool:
        """Return True if a log of the machine may be damaged now.

        The damaged broker registers as after an unclean shutdown, so it leaves ISRs and ELRs. Another complete replica
        must be in the ISR or ELR of each of its partitions. That holds unless another broker lost its membership in the
        same way and is not in sync again. With flushes, a power cut does not lose records, but the membership.
        """
        allowed = self._all_others_in_sync(machine)
        if not allowed:
            self.count("loss withheld by the fault model")
        return allowed

    def replicated_on(self, machine: Machine) -> list[Partition]:
        """Return the partitions of topics that the machine and another one replicate."""
        assert self.monitor is not None
        states = self.monitor.metadata.partitions.items()
        return [place for place, state in states if machine.number in state.replicas and len(state.replicas) > 1]

    def may_stay_away(self, machine: Machine) -> bool:
        """Return True if the machine may be removed permanently: no other machine may be suspect then."""
        return self._others_keep_their_records(machine)

    def _others_keep_their_records(self, machine: Machine) -> bool:
        """Return True if no other machine has lost records and is not in sync yet. A power cut after flushes loses
        none.
        """
        in_sync = self._all_others_in_sync(machine)
        return all(number == machine.number for number in self._damaged) if self.options.flush else in_sync

    def _all_others_in_sync(self, machine: Machine) -> bool:
        for number in list(self._suspects):
            if self._is_in_sync(number):
                del self._suspects[number]
                self._damaged.pop(number, None)
        return all(number == machine.number for number in self._suspects)

    def _is_in_sync(self, number: int) -> bool:
        monitor = self.monitor
        assert monitor is not None
        states = monitor.metadata.partitions.values()
        return self.is_up(number) and all(number in state.isr for state in states if number in state.replicas)

    def is_up(self, number: int) -> bool:
        """Return True if the broker is registered, and its disk has failed no operation since its start.

        The controller learns of a failed disk with a delay: until the broker restarts, its ISR membership proves
        nothing.
        """
        machine = self.machine(number)
        return machine.up.is_set() and not machine.disk_failed

    # findings

    def unexpected_failures(self) -> list[str]:
        """Return unhandled exceptions, except those of a node after its failure, where disk and network fail on
        purpose.
        """
        findings = []
        self.loop.collect_unread()
        for failure, text in zip(self.loop.failures, self.loop.describe_failures(), strict=True):
            failed_at = self.failed_at.get(failure["node"])
            if failed_at is not None and failure["step"] >= failed_at:
                continue
            if not isinstance(failure.get("exception"), Detached):
                findings.append(text)
        return findings
