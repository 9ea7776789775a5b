"""One host of the simulated cluster: an unmodified `odradek.broker.node.Node` on the simulated loop, disk, clock and
network.

The node can fail at any step, and restarts on the files that its last incarnation left.
"""

import asyncio
import traceback
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.node import CannotStartError, Node
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.process.env import Env
from odradek.simulation.environment.clock import SimClock
from odradek.simulation.environment.disk import DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.medium import Medium, flip_rebuildable
from odradek.storage.disk.port import RESOURCE_ERRORS
from tests.sim.cluster.node_config import ROOT, cluster_secret, make_config, shares_listener
from tests.sim.cluster.users import first_credentials
from tests.sim.faults.damage import damage_log
from tests.sim.options.disk_options import (
    DELAYED_BY_METADATA_THREAD,
    DELAYED_BY_SHARED_THREADS,
    FILE_KINDS,
    REFUSED_BY_FULL_DISK,
    error_event,
    file_event,
)
from tests.sim.world import host_name
from tests.support.delayed_commits import delayed_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.cluster.cluster import Cluster

LEAK_CHECKS_MAX: Final = 500
LEAK_CHECK_SECONDS: Final = 0.001
FLIP_PROBABILITY: Final = 0.3
START_ATTEMPTS_MAX: Final = 60
START_RETRY_SECONDS: Final = 0.5
CRASH_DOWNTIME: Final = 0.05


class Machine:
    """One host and the incarnations of its node. `crash` may be called at any step; a supervisor restarts the node."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.rng = cluster.rng
        self.number = number
        self.host = host_name(number)
        self.medium = Medium()
        self.clock = SimClock(self.loop)
        self.node: Node | None = None
        self.disk: SimDisk | None = None
        self.name = ""
        self.incarnations = 0
        self.boots = 1
        self.up = asyncio.Event()
        self.watermarks_at_loss: object = None
        """Directory entry of the high watermark checkpoint when the disk last lost data."""
        self.gone = False
        """True if the machine was removed permanently."""
        self._fail_again_at = 0
        self._disk_failed = False
        self._lacked_resources = False
        """True if a disk operation found no descriptor or no space since the last start of the node."""
        self._full_disks = 0
        """Faults that keep the disk full now."""
        self._lasting_faults: list[tuple[DiskFault, float]] = []
        """Disk faults that stay for later incarnations, each with the seconds until the restart."""
        self._cache_is_stale = False
        self._supervisors: list[asyncio.Task[None]] = []
        self._config = make_config(cluster.options, number)

    @property
    def failed_at(self) -> dict[str, int]:
        return self.cluster.failed_at

    @property
    def alive(self) -> bool:
        """True if a process runs, ready or not."""
        return bool(self.name) and self.name not in self.failed_at

    @property
    def cache_is_stale(self) -> bool:
        """True if a flush failed: the page cache contains data that is not on the disk."""
        return self._cache_is_stale

    @property
    def disk_failed(self) -> bool:
        """True if a disk operation failed since the last start of the node."""
        return self._disk_failed

    # start and stop

    async def start(self) -> bool:
        """Start the node on its disk. Return False if it failed meanwhile, or if the machine was removed."""
        for _ in range(START_ATTEMPTS_MAX):
            if self.gone:
                return False
            name, error = await self._start_once()
            if error is None:
                return self.up.is_set()
            may_recover = self.cluster.options.brokers > 1 or self._disk_failed or self._lacked_resources
            if not isinstance(error, CannotStartError) or not may_recover:
                self._violation(f"L1 {name} does not start: {''.join(traceback.format_exception(error))}")
                return False
            # It may need brokers that are down, disk space or descriptors. As under a process manager, the node is
            # started again.
            self.loop.trace.add(self.loop.steps, self.loop.time(), "start-refused", name, error)
            self.cluster.count("start refused")
            await self._stop_failed_start(name)
            await asyncio.sleep(START_RETRY_SECONDS)
        self._violation(f"L1 {self.host} does not start, {START_ATTEMPTS_MAX} times over: {error}")
        return False

    async def _start_once(self) -> tuple[str, BaseException | None]:
        """Start one incarnation. Return its name and the error of a failed start (None if it was killed meanwhile)."""
        self.incarnations += 1
        groups = self.cluster.options.groups
        if groups is not None and groups.size_max:
            self._config = make_config(self.cluster.options, self.number, self.incarnations)  # the restart changes it
        if self._cache_is_stale:
            self._go_down()  # the flush failed while it stopped
        if self._disk_failed:
            self.cluster.comes_back(self)  # the disk may hold any part of the failed write
        self._disk_failed = self._lacked_resources = False
        name = self.name = f"{self.host}#{self.incarnations}"
        disk = self.disk = self._make_disk(name)
        cluster = self.cluster
        env = Env(
            disk=disk,
            clock=self.clock,
            rng=Random(self.rng.getrandbits(64)),
            boot_id=f"{self.host} boot {self.boots}",
        )
        if self._fail_again_at:
            self._arm(disk, self._fail_again_at, power=False, downtime=CRASH_DOWNTIME)
            self._fail_again_at = 0
        self.loop.network.links.power_on(self.host)
        node = self.node = Node(
            self._config,
            env,
            on_fatal=partial(self._on_fatal, name),
            on_unexpected=partial(self._on_unexpected, name),
            leader_term=delayed_by(cluster.commit_delays) if cluster.options.brokers == 1 else LeaderTerm,
            secret=None if shares_listener(cluster.options) else cluster_secret(cluster.options.seed, name),
            bootstrap_scram={} if cluster.options.security is None else first_credentials(),
        )
        if cluster.acls is not None:
            cluster.acls.follow(name, node)
        task = self.loop.spawn(name, node.start(), f"start {name}")
        try:
            await task
        except (asyncio.CancelledError, Exception) as error:
            return name, None if name in self.failed_at else error
        if name in self.failed_at:
            return name, None
        self.loop.trace.add(self.loop.steps, self.loop.time(), "up", name)
        self.up.set()
        cluster.came_up(self)
        return name, None

    def _make_disk(self, name: str) -> SimDisk:
        options = self.cluster.options
        latency = DiskLatency(sync_seconds_max=options.sync_seconds_max, cold_probability=options.cold_probability)
        disk = SimDisk(self.medium, self.loop, Random(self.rng.getrandbits(64)), name=name, latency=latency)
        disk.watchers += self.cluster.watchers_of(self)
        disk.full = self._full_disks > 0
        disk.on_error = self._count_error
        disk.on_refused = self._count_refusal
        disk.threads.on_delayed = partial(self.cluster.count, DELAYED_BY_SHARED_THREADS)
        for fault, restart_after in self._lasting_faults:
            if not fault.injected:
                self._add_fault(disk, fault, restart_after)
        return disk

    def _count_refusal(self) -> None:
        self._lacked_resources = True
        self.cluster.count(REFUSED_BY_FULL_DISK)

    def _count_error(self, operation: str, path: str, errno: int) -> None:
        self._lacked_resources = self._lacked_resources or errno in RESOURCE_ERRORS
        self.cluster.count(error_event(operation, errno))
        for match in FILE_KINDS:
            if match in path:
                self.cluster.count(file_event(match))

    async def _stop_failed_start(self, name: str) -> None:
        """Stop the remains of a failed start."""
        assert self.node is not None
        try:
            await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.failed_at:
                self._violation(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
        self._mark_failed(name)
        self.loop.network.detach_node(name)
        await self._await_tasks(name)

    def _mark_failed(self, name: str) -> None:
        self.failed_at.setdefault(name, self.loop.steps)

    def _violation(self, text: str) -> None:
        self.cluster.violations.append(text)

    def _on_fatal(self, name: str, reason: str) -> None:
        """Restart a node that reports a fatal error. This is a violation unless its disk has failed."""
        if name in self.failed_at:
            return
        if not self._disk_failed:
            self._violation(f"{name} reported a fatal error: {reason}")
        self.loop.call_soon(self._crash_if, name, context=self.loop.context_of("operator"))

    def _on_unexpected(self, name: str, where: str, error: BaseException) -> None:
        """Report an unexpected exception in the node as a violation."""
        if name not in self.failed_at and not (self._disk_failed and isinstance(error, OSError)):
            self._violation(f"{name}: unexpected in {where}: {''.join(traceback.format_exception(error))}")

    def _crash_if(self, name: str) -> None:
        if self.name == name:
            self.crash(power=False, downtime=CRASH_DOWNTIME)

    async def stop(self) -> None:
        """Stop the node cleanly and drop it."""
        assert self.node is not None
        self.up.clear()
        name = self.name
        await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        if name in self.failed_at:
            raise asyncio.CancelledError
        self._mark_failed(name)
        self.loop.network.detach_node(name)
        await self._await_tasks(name)

    def restart(self, *, downtime: float) -> None:
        """Stop the node cleanly (SIGTERM) and start it again.

        A second signal has no effect: `odradek.broker.__main__` stops its node once.
        """
        if self.up.is_set() and self.alive and not self._cache_is_stale:
            self.up.clear()
            self._supervise(self.restart_cleanly(downtime), "operator")

    async def restart_cleanly(self, downtime: float) -> None:
        began = self.loop.time()
        name = self.name
        try:
            await self.stop()
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.failed_at:
                self._violation(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
            return  # it failed meanwhile; the fault that caused this also restarts it
        await asyncio.sleep(downtime)
        await self.start()
        self.cluster.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    def crash(
        self,
        *,
        power: bool,
        downtime: float,
        fail_again_at: int = 0,
        wipe: bool = False,
        silently: bool = False,
        damage: bool = False,
    ) -> None:
        """End the process, or with `power` the machine, at this step; start it again after `downtime` seconds.

        `power` loses unflushed data, `wipe` all data. `fail_again_at` ends the next incarnation at that disk operation.
        With `silently`, peers receive no reset. With `damage`, a log is damaged if the fault model permits it.
        """
        name = self.name
        if not self.alive or self.disk is None:
            return  # it has failed already
        power = power or self._cache_is_stale
        self.up.clear()
        self.cluster.before_crash(self)
        self._mark_failed(name)
        self.loop.resume(name)
        self._fail_again_at = fail_again_at
        self.loop.trace.add(self.loop.steps, self.loop.time(), "crash", name, power)
        self.disk.detach()
        if silently:
            self.loop.network.links.power_off(self.host)
        self.loop.network.detach_node(name, silently=silently)
        for task in self.loop.tasks_of(name):
            task.cancel()
        if self.rng.random() < FLIP_PROBABILITY:
            flipped = flip_rebuildable(self.medium, ROOT, self.rng)
            self.loop.trace.add(self.loop.steps, self.loop.time(), "bit-flip", flipped)
        if power or wipe:
            self._go_down(wipe=wipe)
        elif damage:
            self._damage_log()
        self._supervise(self._come_back(name, downtime), "supervisor")

    def _go_down(self, *, wipe: bool = False) -> None:
        """Power off the machine."""
        effect = self.medium.lose_power(self.rng)
        self.loop.trace.add(self.loop.steps, self.loop.time(), "power-cut", effect)
        if wipe:
            self.medium = Medium()
        self._cache_is_stale = False
        self.boots += 1
        self.cluster.lost_data(self)

    def _damage_log(self) -> None:
        if not self.cluster.may_be_damaged(self):
            return
        damaged = damage_log(self.medium, ROOT, self.cluster.replicated_on(self), self.rng)
        if damaged is not None:
            self.loop.trace.add(self.loop.steps, self.loop.time(), "damaged", damaged)
            self.cluster.log_damaged(self)

    def _supervise(self, work: "asyncio._CoroutineLike[None]", actor: str) -> None:
        self._supervisors = [task for task in self._supervisors if not task.done()]
        self._supervisors.append(self.loop.create_task(work, name=actor, context=self.loop.context_of(actor)))

    async def _come_back(self, name: str, downtime: float) -> None:
        began = self.loop.time()
        await self._await_tasks(name)
        await asyncio.sleep(downtime)
        if self.gone:
            return
        self.cluster.comes_back(self)
        await self.start()
        self.cluster.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    async def _await_tasks(self, name: str) -> None:
        """Cancel the tasks of an ended process. A task that ignores the cancellation is a violation."""
        for _ in range(LEAK_CHECKS_MAX):
            left = self.loop.tasks_of(name)
            if not left:
                break
            for task in left:  # a task started in the step of the failure is not cancelled yet
                if not task.cancelling():
                    task.cancel()
            await asyncio.sleep(LEAK_CHECK_SECONDS)
        else:
            leaked = [task.get_name() for task in self.loop.tasks_of(name)]
            self._violation(f"tasks of {name} still run after its end: {leaked}")
        self.loop.remove_node(name)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def crash_at_disk_operation(self, operations: int, *, power: bool, downtime: float) -> None:
        """End the process in the middle of a disk operation, `operations` from now."""
        if self.disk is not None and self.alive:
            self._arm(self.disk, operations, power=power, downtime=downtime)

    def crash_in_swap(self, operations: int, *, power: bool, downtime: float) -> None:
        """End the process `operations` disk operations after compaction begins to swap in the next segment."""
        if self.disk is not None and self.alive:
            self.disk.crash_in_swap = operations
            self.disk.on_crash = self._crash_callback(power=power, downtime=downtime)

    def _arm(self, disk: SimDisk, operations: int, *, power: bool, downtime: float) -> None:
        disk.crash_at_operation = disk.operations + operations
        disk.on_crash = self._crash_callback(power=power, downtime=downtime)

    def _crash_callback(self, *, power: bool, downtime: float) -> "Callable[[], None]":
        return lambda: self.crash(power=power and self.cluster.may_lose_data(self), downtime=downtime)

    def disk_fault(self, fault: DiskFault, *, restart_after: float, lasts: bool = False) -> None:
        """Let the next disk operation of the fault's kind fail, if `disk_may_fail` permits. The operator restarts the
        node later.

        After a failed flush the whole machine restarts. The page cache contains data that was never written, and a
        restart of the process alone would not detect that.

        With `lasts`, an operation of a later incarnation can fail, too. Some files are written only during a start.
        """
        if lasts:
            self._lasting_faults.append((fault, restart_after))
        if self.disk is not None and not self.disk.detached:
            self._add_fault(self.disk, fault, restart_after)

    def _add_fault(self, disk: SimDisk, fault: DiskFault, restart_after: float) -> None:
        disk.faults.append(fault)
        name = self.name

        def on_fault(injected: DiskFault) -> None:
            self._disk_failed = True
            self.cluster.disk_failed_operation(self)
            self._cache_is_stale = self._cache_is_stale or injected.loses_cache
            self.loop.call_later(restart_after, self._crash_if, name, context=self.loop.context_of("operator"))

        disk.on_fault = on_fault
        disk.may_fail = partial(self.cluster.disk_may_fail, self)

    def fill_disk(self, seconds: float) -> None:
        """Let the disk be full, for this process and the next ones, until the operator makes space."""
        self._full_disks += 1
        self.loop.call_later(seconds, self._make_space, context=self.loop.context_of("operator"))
        self._set_full()

    def _make_space(self) -> None:
        self._full_disks -= 1
        self._set_full()

    def _set_full(self) -> None:
        if self.disk is not None:
            self.disk.full = self._full_disks > 0

    def occupy_disk_threads(self, seconds: float) -> None:
        """Let slow operations occupy all shared threads of the disk."""
        if self.disk is not None:
            self.disk.threads.occupy_all(seconds)

    def occupy_metadata_thread(self, seconds: float) -> None:
        """Let a slow operation occupy the thread of the metadata log."""
        if self.disk is not None:
            for threads in self.disk.own_threads:
                threads.on_delayed = partial(self.cluster.count, DELAYED_BY_METADATA_THREAD)
                threads.occupy_all(seconds)

    def disarm(self) -> None:
        self._lasting_faults.clear()
        if self.disk is not None:
            self.disk.faults.clear()
            self.disk.crash_at_operation = self.disk.crash_in_swap = None
        self._fail_again_at = 0
