"""How each kind of fault of a run of several brokers is brought about."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.sim.checkers.metadata_log import NO_LEADER
from tests.sim.cluster.admin import Admin
from tests.sim.environment.disk import DiskFault
from tests.sim.environment.links import CLIENTS
from tests.sim.environment.network import BROKERS, FrameFault
from tests.sim.faults.fault import CONTROLLER, COORDINATOR, FRAME_KINDS, LEADER, Fault
from tests.sim.options.group_options import GROUP_COORDINATOR
from tests.sim.world import CONSUMER_OFFSETS, TOPIC, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.cluster.host import Machine
    from tests.sim.world import World

SLOW_SECONDS: Final = (0.02, 0.1, 0.6)
ROLLING_SECONDS_MAX: Final = 30.0
EIO: Final = 5


class ClusterStrikes:
    """One method for each kind, by its name."""

    def __init__(self, world: "World", disturbed: Callable[[float], None]) -> None:
        self.world = world
        self.rng = Random(world.options.seed * 31 + 7)
        self.admin = Admin(world, "admin")
        self._disturbed = disturbed

    def strike(self, fault: Fault) -> None:
        if fault.kind in FRAME_KINDS:
            self._frame(fault)
        else:
            getattr(self, f"_{fault.kind}")(fault, self.target(fault))

    def target(self, fault: Fault) -> "Machine":
        """The machine that has the role now; by number, when nobody has."""
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

    # -- processes and machines

    def _kill(self, fault: Fault, machine: "Machine") -> None:
        machine.crash(
            power=False, downtime=fault.seconds, die_again_at=fault.number % 40 if fault.number % 3 == 0 else 0
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
        """A disk is replaced while all others run."""
        others = [each for each in self.world.cluster.machines if each is not machine]
        wipe = self._allowed(machine) and all(each.up.is_set() for each in others)
        machine.crash(power=wipe, wipe=wipe, downtime=fault.seconds)
        if wipe:
            self.world.count("disk replaced by an empty one")

    def _die_at_disk(self, fault: Fault, machine: "Machine") -> None:
        machine.die_at_disk(fault.number, power=False, downtime=fault.seconds)

    def _power_at_disk(self, fault: Fault, machine: "Machine") -> None:
        machine.die_at_disk(fault.number, power=True, downtime=fault.seconds)

    def _die_in_swap(self, fault: Fault, machine: "Machine") -> None:
        machine.die_in_swap(fault.number, power=False, downtime=fault.seconds)

    def _power_in_swap(self, fault: Fault, machine: "Machine") -> None:
        machine.die_in_swap(fault.number, power=True, downtime=fault.seconds)

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
            if not machine.up.is_set() or not machine.alive or machine.cache_lies:
                continue
            await machine.restart_cleanly(downtime)
            try:
                await asyncio.wait_for(machine.up.wait(), ROLLING_SECONDS_MAX)
            except TimeoutError:
                return  # other faults are at work; who rolls gives up

    def _storm(self, fault: Fault, machine: "Machine") -> None:
        """Kills in quick succession, of any process."""
        loop = self.world.loop
        for each in self.world.cluster.machines:
            if self.rng.random() < 0.7:
                loop.call_later(
                    self.rng.random() * 0.5,
                    self._kill_later,
                    each,
                    self.rng.random() * fault.seconds,
                    context=loop.context_of("nemesis"),
                )

    @staticmethod
    def _kill_later(machine: "Machine", downtime: float) -> None:
        machine.crash(power=False, downtime=downtime)

    # -- the network

    def _cut(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        links = self.world.loop.network.links
        for here, there in self._links(fault, machine):
            links.cut(here, there, fault.seconds)

    def _cut_from_clients(self, fault: Fault, machine: "Machine") -> None:
        links = self.world.loop.network.links
        links.cut(CLIENTS, machine.host, fault.seconds)
        links.cut(machine.host, CLIENTS, fault.seconds)

    def _slow(self, fault: Fault, machine: "Machine") -> None:
        self._disturbed(fault.seconds)
        links = self.world.loop.network.links
        by = SLOW_SECONDS[fault.number % len(SLOW_SECONDS)]
        for here, there in self._links(fault, machine):
            links.slow(here, there, fault.seconds, by)

    def _datagrams(self, fault: Fault, machine: "Machine") -> None:
        links = self.world.loop.network.links
        for here, there in self._links(fault, machine):
            links.block_datagrams(here, there, fault.seconds * 4)

    def _links(self, fault: Fault, machine: "Machine") -> list[tuple[str, str]]:
        """Between the target and all others, one other, or the clients; one direction of it, where the fault says so."""
        hosts = [each.host for each in self.world.cluster.machines if each is not machine]
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

    def _cut_all(self, fault: Fault, machine: "Machine") -> None:
        self.world.loop.network.cut_all(refuse_seconds=fault.seconds / 10)

    def _reset(self, fault: Fault, machine: "Machine") -> None:
        self.world.loop.network.cut_one()

    # -- clocks and disks

    def _clock(self, fault: Fault, machine: "Machine") -> None:
        machine.clock.jump(int(fault.seconds * 1000))

    def _disk_write(self, fault: Fault, machine: "Machine") -> None:
        topic = TOPIC if fault.target == LEADER else TRANSACTION_STATE
        self._disturbed(fault.seconds)
        machine.disk_fault(DiskFault("write", f"/{topic}-", EIO), restart_after=fault.seconds)

    # -- administrators

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

    # -- the end

    def leave_behind(self, how: str) -> "Machine":
        """One broker stays dead, or cut off, for ever: any, unless that would break the fault model."""
        cluster = self.world.cluster
        machine = self.rng.choice([each for each in cluster.machines if cluster.may_stay_away(each)])
        machine.gone = True
        if how == "dead":
            machine.crash(power=False, downtime=0.0)
        else:
            links = self.world.loop.network.links
            for other in [*(each.host for each in self.world.cluster.machines if each is not machine), CLIENTS]:
                links.cut(machine.host, other, math.inf)
                links.cut(other, machine.host, math.inf)
        return machine

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        loop = self.world.loop
        loop.create_task(work, name=what, context=loop.context_of("nemesis"))
