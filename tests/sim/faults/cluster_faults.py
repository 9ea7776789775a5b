"""Faults of runs with several brokers, by kind."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.environment.disk import DiskFault
from odradek.simulation.environment.links import CLIENTS
from odradek.simulation.environment.network import BROKERS, FrameFault
from tests.sim.checkers.metadata_log import NO_LEADER
from tests.sim.cluster.admin import Admin
from tests.sim.faults.fault import (
    CONTROLLER,
    COORDINATOR,
    FRAME_KINDS,
    LEADER,
    SLOW_METADATA_THREAD,
    SLOW_THREADS,
    Fault,
)
from tests.sim.faults.late_join import LateJoin
from tests.sim.faults.voter_failure import VoterFailure
from tests.sim.options.damage_options import DAMAGE, EVERY_BROKER
from tests.sim.options.disk_options import DISK_ERRORS, DISK_FULL, DISK_OPERATION
from tests.sim.options.group_options import GROUP_COORDINATOR
from tests.sim.options.outage_options import OUTAGE
from tests.sim.options.read_options import READ_AFTER_KILL, READ_AFTER_STOP, READ_FILES
from tests.sim.options.scenario_options import LATE_JOIN, VOTER_FAILURE
from tests.sim.world import CONSUMER_OFFSETS, TOPIC, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.cluster.host import Machine
    from tests.sim.world import World

SLOW_SECONDS: Final = (0.02, 0.1, 0.6)
OUTAGE_SECONDS: Final = 1.0
"""Maximum seconds by which the other brokers start later than the one that has lost power."""
ROLLING_SECONDS_MAX: Final = 30.0
EIO: Final = 5


class ClusterFaults:
    """Injection of faults into a cluster, one method per kind."""

    def __init__(self, world: "World", disturbed: Callable[[float], None]) -> None:
        self.world = world
        self.rng = Random(world.options.seed * 31 + 7)
        self.admin = Admin(world, "admin")
        self._disturbed = disturbed
        self._methods: dict[str, Callable[[Fault, Machine], None]] = {
            "kill": self._kill,
            "power": self._power,
            "wipe": self._wipe,
            "die_at_disk": self._crash_at_disk,
            "power_at_disk": self._power_at_disk,
            "die_in_swap": self._crash_in_swap,
            "power_in_swap": self._power_in_swap,
            "pause": self._pause,
            "restart": self._restart,
            "rolling": self._rolling,
            "storm": self._storm,
            "cut": self._partition,
            "cut_from_clients": self._partition_from_clients,
            "slow": self._slow,
            "datagrams": self._datagrams,
            "cut_all": self._reset_all,
            "reset": self._reset,
            "clock": self._clock,
            "disk_write": self._disk_write,
            SLOW_THREADS: self._slow_threads,
            SLOW_METADATA_THREAD: self._slow_metadata_thread,
            "move_leader": self._move_leader,
            "reassign": self._reassign,
            "delete_topic": self._delete_topic,
            DAMAGE: self._damage,
            OUTAGE: self._outage,
            DISK_OPERATION: self._disk_operation,
            DISK_FULL: self._disk_full,
            READ_AFTER_KILL: self._read_error,
            READ_AFTER_STOP: self._read_error,
            LATE_JOIN: self._late_join,
            VOTER_FAILURE: self._voter_failure,
        }

    def inject(self, fault: Fault) -> None:
        if fault.kind in FRAME_KINDS:
            self._frame(fault)
        else:
            self._methods[fault.kind](fault, self.target(fault))

    def target(self, fault: Fault) -> "Machine":
        """Return the machine that has the role now. Without one, `fault.number` selects the machine."""
        world, options = self.world, self.world.options
        metadata = world.monitor.metadata
        number = NO_LEADER
        if fault.target == LEADER:
            state = metadata.partitions.get((TOPIC, fault.number % options.partitions))
            number = state.leader if state is not None else NO_LEADER
        elif fault.target == COORDINATOR:
            state = metadata.partitions.get((TRANSACTION_STATE, fault.number % options.transaction_partitions))
            number = state.leader if state is not None else NO_LEADER
        elif fault.target == GROUP_COORDINATOR:
            state = metadata.partitions.get(self._groups_place(fault))
            number = state.leader if state is not None else NO_LEADER
        elif fault.target == CONTROLLER and metadata.terms:
            number = metadata.terms[max(metadata.terms)]
        if number == NO_LEADER:
            number = 1 + fault.number % options.brokers
        return world.cluster.machine(number)

    def _groups_place(self, fault: Fault) -> tuple[str, int]:
        return CONSUMER_OFFSETS, fault.number % self.world.monitor.groups.partitions

    # ---- processes and machines -------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, machine: "Machine") -> None:
        machine.crash(
            power=False, downtime=fault.seconds, fail_again_at=fault.number % 40 if fault.number % 3 == 0 else 0
        )

    def _power(self, fault: Fault, machine: "Machine") -> None:
        power = self._allowed(machine)
        machine.crash(power=power, downtime=fault.seconds, silently=fault.number % 2 == 0)

    def _allowed(self, machine: "Machine") -> bool:
        allowed = self.world.cluster.may_lose_data(machine)
        if not allowed:
            self.world.count("loss withheld by the fault model")
        return allowed

    def _wipe(self, fault: Fault, machine: "Machine") -> None:
        """Replace the disk by an empty one, if all other machines are up."""
        others = [other_machine for other_machine in self.world.cluster.machines if other_machine is not machine]
        wipe = self._allowed(machine) and all(other_machine.up.is_set() for other_machine in others)
        machine.crash(power=wipe, wipe=wipe, downtime=fault.seconds)
        if wipe:
            self.world.count("disk replaced by an empty one")

    def _crash_at_disk(self, fault: Fault, machine: "Machine") -> None:
        machine.crash_at_disk_operation(fault.number, power=False, downtime=fault.seconds)

    def _power_at_disk(self, fault: Fault, machine: "Machine") -> None:
        machine.crash_at_disk_operation(fault.number, power=True, downtime=fault.seconds)

    def _crash_in_swap(self, fault: Fault, machine: "Machine") -> None:
        machine.crash_in_swap(fault.number, power=False, downtime=fault.seconds)

    def _power_in_swap(self, fault: Fault, machine: "Machine") -> None:
        machine.crash_in_swap(fault.number, power=True, downtime=fault.seconds)

    def _pause(self, fault: Fault, machine: "Machine") -> None:
        if machine.alive:
            self._disturbed(fault.seconds)
            self.world.loop.stall(machine.name, fault.seconds)

    def _restart(self, fault: Fault, machine: "Machine") -> None:
        machine.restart(downtime=fault.seconds)

    def _rolling(self, fault: Fault, machine: "Machine") -> None:
        self._spawn(self._roll(fault.seconds / 4), "rolling restart")

    async def _roll(self, downtime: float) -> None:
        for machine in self.world.cluster.machines:
            if not machine.up.is_set() or not machine.alive or machine.cache_is_stale:
                continue
            await machine.restart_cleanly(downtime)
            try:
                await asyncio.wait_for(machine.up.wait(), ROLLING_SECONDS_MAX)
            except TimeoutError:
                return  # another fault keeps the broker down: the rolling restart ends here

    def _storm(self, fault: Fault, machine: "Machine") -> None:
        """Kill random processes within half a second."""
        loop = self.world.loop
        for other_machine in self.world.cluster.machines:
            if self.rng.random() < 0.7:
                loop.call_later(
                    self.rng.random() * 0.5,
                    self._kill_later,
                    other_machine,
                    self.rng.random() * fault.seconds,
                    context=loop.context_of("faults"),
                )

    @staticmethod
    def _kill_later(machine: "Machine", downtime: float) -> None:
        machine.crash(power=False, downtime=downtime)

    # network

    def _partition(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        links = self.world.loop.network.links
        for source, destination in self._links(fault, machine):
            links.partition(source, destination, fault.seconds)

    def _partition_from_clients(self, fault: Fault, machine: "Machine") -> None:
        links = self.world.loop.network.links
        links.partition(CLIENTS, machine.host, fault.seconds)
        links.partition(machine.host, CLIENTS, fault.seconds)

    def _slow(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        links = self.world.loop.network.links
        by = SLOW_SECONDS[fault.number % len(SLOW_SECONDS)]
        for source, destination in self._links(fault, machine):
            links.slow(source, destination, fault.seconds, by)

    def _datagrams(self, fault: Fault, machine: "Machine") -> None:
        links = self.world.loop.network.links
        for source, destination in self._links(fault, machine):
            links.block_datagrams(source, destination, fault.seconds * 4)

    def _links(self, fault: Fault, machine: "Machine") -> list[tuple[str, str]]:
        """Return the directed links between the target and the other brokers, one broker, or the clients.

        With `fault.one_way`, only the links of one direction.
        """
        hosts = [other_machine.host for other_machine in self.world.cluster.machines if other_machine is not machine]
        if fault.other == "one":
            hosts = [hosts[fault.number % len(hosts)]]
        elif fault.other == "clients":
            hosts = [CLIENTS]
        outward = [(machine.host, host) for host in hosts]
        inward = [(host, machine.host) for host in hosts]
        if fault.one_way:
            return outward if fault.number % 2 else inward
        return outward + inward

    def _frame(self, fault: Fault) -> None:
        source = BROKERS if fault.other == "brokers" else CLIENTS
        self.world.loop.network.faults.append(
            FrameFault(fault.kind, (fault.api_key,), delay=fault.seconds, source=source)
        )

    def _reset_all(self, fault: Fault, machine: "Machine") -> None:
        self.world.loop.network.reset_all(refuse_seconds=fault.seconds / 10)

    def _reset(self, fault: Fault, machine: "Machine") -> None:
        self.world.loop.network.reset_one()

    # ---- clocks and disks -------------------------------------------------------------------------------------------

    def _clock(self, fault: Fault, machine: "Machine") -> None:
        machine.clock.jump(int(fault.seconds * 1000))

    def _read_error(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        clean = fault.kind == READ_AFTER_STOP
        machine.read_error(READ_FILES[fault.number], downtime=fault.seconds, clean=clean)

    def _disk_write(self, fault: Fault, machine: "Machine") -> None:
        topic = TOPIC if fault.target == LEADER else TRANSACTION_STATE
        self._disturbed(fault.seconds)
        machine.disk_fault(DiskFault("write", f"/{topic}-", EIO), restart_after=fault.seconds)

    def _disk_operation(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        machine.disk_fault(DiskFault(*DISK_ERRORS[fault.number]), restart_after=fault.seconds, lasts=True)

    def _disk_full(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        machine.fill_disk(fault.seconds)

    def _slow_threads(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        machine.occupy_disk_threads(fault.seconds)

    def _slow_metadata_thread(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        machine.occupy_metadata_thread(fault.seconds)

    def _damage(self, fault: Fault, machine: "Machine") -> None:
        """Kill the process of the target, or those of all brokers, and damage a log of the target before it starts.

        In a third of the cases, the process is killed again while it recovers.
        """
        again = 1 + fault.number % 40 if fault.number % 3 == 0 else 0
        machine.crash(power=False, downtime=fault.seconds, fail_again_at=again, damage=True)
        if fault.other == EVERY_BROKER:
            for other_machine in self.world.cluster.machines:
                if other_machine is not machine:
                    other_machine.crash(power=False, downtime=fault.seconds)

    def _outage(self, fault: Fault, machine: "Machine") -> None:
        """Kill the processes of all brokers; the machine of the target loses power, and starts first."""
        machine.crash(power=self._allowed(machine), downtime=fault.seconds)
        for other_machine in self.world.cluster.machines:
            if other_machine is not machine:
                other_machine.crash(power=False, downtime=fault.seconds + OUTAGE_SECONDS * self.rng.random())

    def _late_join(self, fault: Fault, machine: "Machine") -> None:
        self._spawn(LateJoin(self.world).run(fault.number), "late join")

    def _voter_failure(self, fault: Fault, machine: "Machine") -> None:
        self._spawn(VoterFailure(self.world).run(), "voter failure")

    # administration

    def _move_leader(self, fault: Fault, machine: "Machine") -> None:
        place = (TOPIC, fault.number % self.world.options.partitions)
        if fault.target == GROUP_COORDINATOR:
            place = self._groups_place(fault)
        self._spawn(self.admin.move_leader(place), "move leader")

    def _reassign(self, fault: Fault, machine: "Machine") -> None:
        place = (
            (TRANSACTION_STATE, fault.number % self.world.options.transaction_partitions)
            if fault.target == COORDINATOR
            else (TOPIC, fault.number % self.world.options.partitions)
        )
        if fault.target == GROUP_COORDINATOR:
            place = self._groups_place(fault)
        self._spawn(self.admin.reassign(place), "reassign")

    def _delete_topic(self, fault: Fault, machine: "Machine") -> None:
        self._spawn(self.admin.delete_topic(fault.seconds), "delete topic")

    # after the faults

    def leave_behind(self, how: str) -> "Machine":
        """Stop or isolate one broker permanently: a random one that the fault model permits."""
        cluster = self.world.cluster
        machine = self.rng.choice(
            [other_machine for other_machine in cluster.machines if cluster.may_stay_away(other_machine)]
        )
        machine.gone = True
        if how == "dead":
            machine.crash(power=False, downtime=0.0)
        else:
            links = self.world.loop.network.links
            for other in [
                *(other_machine.host for other_machine in self.world.cluster.machines if other_machine is not machine),
                CLIENTS,
            ]:
                links.partition(machine.host, other, math.inf)
                links.partition(other, machine.host, math.inf)
        return machine

    def _spawn(self, work: Coroutine[Any, Any, None], task_name: str) -> None:
        loop = self.world.loop
        loop.create_task(work, name=task_name, context=loop.context_of("faults"))
