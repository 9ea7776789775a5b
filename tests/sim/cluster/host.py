"""One host of the simulated cluster: `odradek.broker.node.Node`, unmodified, on the simulated loop, disk, clock and network. It dies and comes back on what it left."""

import asyncio
import traceback
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.node import CannotStartError, Node
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.process.env import Env
from tests.sim.cluster.node_config import ROOT, make_config
from tests.sim.environment.clock import SimClock
from tests.sim.environment.disk import DiskFault, DiskLatency, SimDisk
from tests.sim.environment.medium import Medium, flip_rebuildable
from tests.sim.world import host_name
from tests.support.held_commits import held_by

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
    """One host, life after life. `crash` may be called at any step; a supervisor brings the node back."""

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
        self.lives = 0
        self.boots = 1
        self.up = asyncio.Event()
        self.watermarks_at_loss: object = None
        """The file with the high watermarks, as it was when the disk last lost something."""
        self.gone = False
        """It stays away from here on."""
        self._die_again_at = 0
        self._disk_failed = False
        self._cache_lies = False
        self._supervisors: list[asyncio.Task[None]] = []
        self._config = make_config(cluster.options, number)

    @property
    def died_at(self) -> dict[str, int]:
        return self.cluster.died_at

    @property
    def alive(self) -> bool:
        """A process runs, ready or not."""
        return bool(self.name) and self.name not in self.died_at

    @property
    def cache_lies(self) -> bool:
        """A sync has failed: what the page cache shows is not on the disk."""
        return self._cache_lies

    @property
    def disk_failed(self) -> bool:
        """Its disk has refused something since the node was started last."""
        return self._disk_failed

    # -- life

    async def start(self) -> bool:
        """Start the node on what the disk holds. False when it died on the way, or is gone for ever."""
        for _ in range(START_ATTEMPTS_MAX):
            if self.gone:
                return False
            name, error = await self._start_once()
            if error is None:
                return self.up.is_set()
            if self.cluster.options.brokers == 1 or not isinstance(error, CannotStartError):
                self._violation(f"L1 {name} does not start: {''.join(traceback.format_exception(error))}")
                return False
            # It may need the others, who are away: whoever runs it starts it again.
            self.loop.trace.add(self.loop.steps, self.loop.time(), "start-refused", name, error)
            self.cluster.count("start refused")
            await self._end_life(name)
            await asyncio.sleep(START_RETRY_SECONDS)
        self._violation(f"L1 {self.host} does not start, {START_ATTEMPTS_MAX} times over: {error}")
        return False

    async def _start_once(self) -> tuple[str, BaseException | None]:
        """The name of the life, and why it did not begin; no reason when it began, or was killed on the way."""
        self.lives += 1
        groups = self.cluster.options.groups
        if groups is not None and groups.size_max:
            self._config = make_config(self.cluster.options, self.number, self.lives)  # a restart has changed it
        if self._cache_lies:
            self._go_down()  # the sync failed when it was about to stop anyway
        if self._disk_failed:
            self.cluster.comes_back(self)  # of a write that was refused any part may be there
        self._disk_failed = False
        name = self.name = f"{self.host}#{self.lives}"
        disk = self.disk = self._make_disk(name)
        cluster = self.cluster
        env = Env(
            disk=disk,
            clock=self.clock,
            rng=Random(self.rng.getrandbits(64)),
            boot_id=f"{self.host} boot {self.boots}",
        )
        if self._die_again_at:
            self._arm(disk, self._die_again_at, power=False, downtime=CRASH_DOWNTIME)
            self._die_again_at = 0
        self.loop.network.links.power_on(self.host)
        node = self.node = Node(
            self._config,
            env,
            on_fatal=partial(self._on_fatal, name),
            on_unexpected=partial(self._on_unexpected, name),
            leader_term=held_by(cluster.gates) if cluster.options.brokers == 1 else LeaderTerm,
        )
        task = self.loop.spawn(name, node.start(), f"start {name}")
        try:
            await task
        except (asyncio.CancelledError, Exception) as error:
            return name, None if name in self.died_at else error
        if name in self.died_at:
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
        return disk

    async def _end_life(self, name: str) -> None:
        """Stop what a failed start has left behind."""
        assert self.node is not None
        try:
            await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.died_at:
                self._violation(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
        self._mark_dead(name)
        self.loop.network.detach_node(name)
        await self._bury(name)

    def _mark_dead(self, name: str) -> None:
        self.died_at.setdefault(name, self.loop.steps)

    def _violation(self, text: str) -> None:
        self.cluster.violations.append(text)

    def _on_fatal(self, name: str, reason: str) -> None:
        """The node says that it cannot go on. It may, when its disk has failed; whoever runs it starts it again."""
        if name in self.died_at:
            return
        if not self._disk_failed:
            self._violation(f"{name} gives up: {reason}")
        self.loop.call_soon(self._crash_if, name, context=self.loop.context_of("operator"))

    def _on_unexpected(self, name: str, where: str, error: BaseException) -> None:
        """A bug, as the node itself sees it."""
        if name not in self.died_at and not (self._disk_failed and isinstance(error, OSError)):
            self._violation(f"{name}: unexpected in {where}: {''.join(traceback.format_exception(error))}")

    def _crash_if(self, name: str) -> None:
        if self.name == name:
            self.crash(power=False, downtime=CRASH_DOWNTIME)

    async def stop(self) -> None:
        """Stop cleanly and forget the node."""
        assert self.node is not None
        self.up.clear()
        name = self.name
        await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        if name in self.died_at:
            raise asyncio.CancelledError
        self._mark_dead(name)
        self.loop.network.detach_node(name)
        await self._bury(name)

    def restart(self, *, downtime: float) -> None:
        """Stop cleanly and come back (SIGTERM). A second signal changes nothing: `odradek.broker.__main__` stops its node once."""
        if self.up.is_set() and self.alive and not self._cache_lies:
            self.up.clear()
            self._supervise(self.restart_cleanly(downtime), "operator")

    async def restart_cleanly(self, downtime: float) -> None:
        began = self.loop.time()
        name = self.name
        try:
            await self.stop()
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.died_at:
                self._violation(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
            return  # it died on the way; who killed it brings it back
        await asyncio.sleep(downtime)
        await self.start()
        self.cluster.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    def crash(
        self, *, power: bool, downtime: float, die_again_at: int = 0, wipe: bool = False, silently: bool = False
    ) -> None:
        """The process is gone, or the machine. What is un-synced is lost with `power`, everything with `wipe`; it is back after `downtime` seconds."""
        name = self.name
        if not self.alive or self.disk is None:
            return  # it is dead already
        power = power or self._cache_lies
        self.up.clear()
        self.cluster.before_crash(self)
        self._mark_dead(name)
        self.loop.resume(name)
        self._die_again_at = die_again_at
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
        self._supervise(self._come_back(name, downtime), "supervisor")

    def _go_down(self, *, wipe: bool = False) -> None:
        """The machine, and not just the process."""
        cut = self.medium.lose_power(self.rng)
        self.loop.trace.add(self.loop.steps, self.loop.time(), "power-cut", cut)
        if wipe:
            self.medium = Medium()
        self._cache_lies = False
        self.boots += 1
        self.cluster.lost_data(self)

    def _supervise(self, work: "asyncio._CoroutineLike[None]", who: str) -> None:
        self._supervisors = [task for task in self._supervisors if not task.done()]
        self._supervisors.append(self.loop.create_task(work, name=who, context=self.loop.context_of(who)))

    async def _come_back(self, name: str, downtime: float) -> None:
        began = self.loop.time()
        await self._bury(name)
        await asyncio.sleep(downtime)
        if self.gone:
            return
        self.cluster.comes_back(self)
        await self.start()
        self.cluster.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    async def _bury(self, name: str) -> None:
        """A task that does not end when it is cancelled has leaked out of its node."""
        for _ in range(LEAK_CHECKS_MAX):
            left = self.loop.tasks_of(name)
            if not left:
                break
            for task in left:  # what was started in the very step in which the node died has not been told yet
                if not task.cancelling():
                    task.cancel()
            await asyncio.sleep(LEAK_CHECK_SECONDS)
        else:
            leaked = [task.get_name() for task in self.loop.tasks_of(name)]
            self._violation(f"tasks of {name} outlive it: {leaked}")
        self.loop.bury(name)

    # -- faults

    def die_at_disk(self, operations: int, *, power: bool, downtime: float) -> None:
        """Die in the middle of a disk operation, that many from now."""
        if self.disk is not None and self.alive:
            self._arm(self.disk, operations, power=power, downtime=downtime)

    def die_in_swap(self, operations: int, *, power: bool, downtime: float) -> None:
        """Die while compaction swaps in the next segment, that many disk operations after it has begun to."""
        if self.disk is not None and self.alive:
            self.disk.die_in_swap = operations
            self.disk.on_death = self._death(power=power, downtime=downtime)

    def _arm(self, disk: SimDisk, operations: int, *, power: bool, downtime: float) -> None:
        disk.die_at_operation = disk.operations + operations
        disk.on_death = self._death(power=power, downtime=downtime)

    def _death(self, *, power: bool, downtime: float) -> "Callable[[], None]":
        return lambda: self.crash(power=power and self.cluster.may_lose_data(self), downtime=downtime)

    def disk_fault(self, fault: DiskFault, *, restart_after: float) -> None:
        """The next such operation fails, if it may then; the operator restarts the node a while later.

        After a failed sync the whole machine: what the page cache still shows was never written, and no restart of the process would find out.
        """
        disk = self.disk
        if disk is None or disk.detached:
            return
        disk.faults.append(fault)
        name = self.name

        def struck() -> None:
            self._disk_failed = True
            self.cluster.disk_refused(self)
            self._cache_lies = fault.operation == "sync"
            self.loop.call_later(restart_after, self._crash_if, name, context=self.loop.context_of("operator"))

        disk.on_fault = struck
        disk.may_refuse = partial(self.cluster.disk_may_refuse, self)

    def disarm(self) -> None:
        if self.disk is not None:
            self.disk.faults.clear()
            self.disk.die_at_operation = self.disk.die_in_swap = None
        self._die_again_at = 0
