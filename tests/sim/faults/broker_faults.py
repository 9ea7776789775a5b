"""Faults of runs with one broker, by kind."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.simulation.environment.disk import DiskFault
from odradek.simulation.environment.network import FrameFault
from tests.sim.faults.fault import CLOCK_KINDS, FRAME_KINDS, SLOW_METADATA_THREAD, SLOW_THREADS, Fault
from tests.sim.options.disk_options import DISK_ERRORS, DISK_FULL, DISK_OPERATION
from tests.sim.options.group_options import GROUP_COORDINATOR
from tests.sim.options.read_options import READ_AFTER_STOP, READ_FILES, READ_KINDS
from tests.sim.world import CONSUMER_OFFSETS, TOPIC, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.world import World

NODE_ID = 1


class BrokerFaults:
    """Injection of each kind of fault into a run with one broker."""

    def __init__(self, world: "World", disturbed: Callable[[float], None]) -> None:
        self.world = world
        self._disturbed = disturbed

    def inject(self, fault: Fault) -> None:
        loop, cluster = self.world.loop, self.world.cluster
        machine = cluster.only
        if fault.kind in {"kill", "power"}:
            machine.crash(power=fault.kind == "power", downtime=fault.seconds, fail_again_at=fault.number)
        elif fault.kind in {"die_at_disk", "power_at_disk"}:
            machine.crash_at_disk_operation(fault.number, power=fault.kind == "power_at_disk", downtime=fault.seconds)
        elif fault.kind in {"die_in_swap", "power_in_swap"}:
            machine.crash_in_swap(fault.number, power=fault.kind == "power_in_swap", downtime=fault.seconds)
        elif fault.kind in FRAME_KINDS:
            api_keys = (fault.api_key,) if fault.api_key >= 0 else ()
            loop.network.faults.append(FrameFault(fault.kind, api_keys, delay=fault.seconds))
        elif fault.kind == "cut_all":
            loop.network.reset_all(refuse_seconds=fault.seconds)
        elif fault.kind == "cut_one":
            loop.network.reset_one()
        elif fault.kind == "lag":
            self._disturbed(fault.seconds)
            cluster.commit_delays.hold(self._partition(fault), fault.seconds)
        elif fault.kind == "leadership":
            loop.create_task(self._lose_leadership(fault.seconds), name="leadership", context=loop.context_of("faults"))
        elif fault.kind == "restart":
            machine.restart(downtime=fault.seconds)
        elif fault.kind == "stall":
            self._disturbed(fault.seconds)
            loop.stall(machine.name, fault.seconds)
        elif fault.kind in CLOCK_KINDS:
            machine.clock.jump(fault.number)
        elif fault.kind == SLOW_THREADS:
            self._disturbed(fault.seconds)
            machine.occupy_disk_threads(fault.seconds)
        elif fault.kind == SLOW_METADATA_THREAD:
            self._disturbed(fault.seconds)
            machine.occupy_metadata_thread(fault.seconds)
        elif fault.kind == DISK_OPERATION:
            self._disturbed(fault.seconds)
            machine.disk_fault(DiskFault(*DISK_ERRORS[fault.number]), restart_after=fault.seconds, lasts=True)
        elif fault.kind in READ_KINDS:
            self._disturbed(fault.seconds)
            clean = fault.kind == READ_AFTER_STOP
            machine.read_error(READ_FILES[fault.number], downtime=fault.seconds, clean=clean)
        elif fault.kind == DISK_FULL:
            self._disturbed(fault.seconds)
            machine.fill_disk(fault.seconds)
        elif fault.kind in {"disk_write", "disk_sync"}:
            operation = fault.kind.removeprefix("disk_")
            topic = TOPIC if fault.target == "data" else TRANSACTION_STATE
            machine.disk_fault(DiskFault(operation, f"/{topic}-", fault.number), restart_after=fault.seconds)
        else:
            raise AssertionError(fault.kind)

    def _partition(self, fault: Fault) -> tuple[str, int]:
        options = self.world.options
        if fault.target == "coordinator":
            return TRANSACTION_STATE, fault.number % options.transaction_partitions
        if fault.target == GROUP_COORDINATOR:
            return CONSUMER_OFFSETS, fault.number % self.world.monitor.groups.partitions
        return TOPIC, fault.number % options.partitions

    async def _lose_leadership(self, seconds: float) -> None:
        """Let the controller fence the broker for `seconds`: it loses the leadership of all partitions."""
        await self._set_fenced(fence=True)
        await asyncio.sleep(seconds)
        await self._set_fenced(fence=False)

    async def _set_fenced(self, *, fence: bool) -> None:
        loop, machine = self.world.loop, self.world.cluster.only
        node = machine.node
        if node is None or not machine.up.is_set():
            return

        async def submit() -> None:
            await (
                node.quorum.controller.fence_broker(NODE_ID)
                if fence
                else node.quorum.controller.unfence_broker(NODE_ID)
            )

        try:
            await loop.spawn(machine.name, submit(), "leadership")
        except (asyncio.CancelledError, Exception) as error:
            loop.trace.add(loop.steps, loop.time(), "leadership-refused", type(error).__name__)
