"""One host of a simulated cluster: an unmodified `odradek.broker.node.Node` on the simulated loop, disk, clock and
network.

The node can fail at any step, and restarts on the files that its previous incarnation left.
"""

import asyncio
import traceback
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.node import CannotStartError, Node
from odradek.broker.process.env import Env
from odradek.simulation.environment.clock import SimClock
from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.medium import Medium

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.config.properties import Config
    from odradek.simulation.environment.disk import DiskWatcher
    from odradek.simulation.environment.loop import SimLoop

HOST_FORM: Final = "broker-{}.sim"
ROOT: Final = "/data"
"""Data directory of every node."""
LEAK_CHECKS_MAX: Final = 500
LEAK_CHECK_SECONDS: Final = 0.001
START_ATTEMPTS_MAX: Final = 60
START_RETRY_SECONDS: Final = 0.5
CRASH_DOWNTIME: Final = 0.05


def host_name(number: int) -> str:
    """Return the host name of node `number`."""
    return HOST_FORM.format(number)


class Host:
    """One host and the incarnations of its node. `crash` may be called at any step; a supervisor restarts the node.

    A subclass overrides the hooks at the end of this class: what the node is made of, and what observes it.
    """

    def __init__(
        self, loop: "SimLoop", rng: Random, number: int, failed_at: dict[str, int], violations: list[str]
    ) -> None:
        """Prepare the host of node `number`. Failed incarnations and violations are added to the shared collections."""
        self.loop = loop
        self.rng = rng
        self.number = number
        self.failed_at = failed_at
        """The step at which each incarnation ended, by its name."""
        self.violations = violations
        self.host = host_name(number)
        self.medium = Medium()
        self.clock = SimClock(self.loop)
        self.node: Node | None = None
        self.disk: SimDisk | None = None
        self.name = ""
        self.incarnations = 0
        self.boots = 1
        self.up = asyncio.Event()
        self.downtime_ms = 0
        """Total time without a serving node, in milliseconds of virtual time."""
        self.gone = False
        """True if the host was removed permanently."""
        self._fail_again_at = 0
        self._disk_failed = False
        self._lacked_resources = False
        """True if a disk operation found no descriptor or no space since the last start of the node."""
        self._cache_is_stale = False
        self._supervisors: list[asyncio.Task[None]] = []

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
        """Start the node on its disk. Return False if it failed meanwhile, or if the host was removed."""
        for _ in range(START_ATTEMPTS_MAX):
            if self.gone:
                return False
            name, error = await self._start_once()
            if error is None:
                return self.up.is_set()
            if not isinstance(error, CannotStartError) or not self.may_recover():
                self._violation(f"L1 {name} does not start: {''.join(traceback.format_exception(error))}")
                return False
            # It may need brokers that are down, disk space or descriptors. As under a process manager, the node is
            # started again.
            self.loop.trace.add(self.loop.steps, self.loop.time(), "start-refused", name, error)
            self.count("start refused")
            if not await self._stop_failed_start(name):
                return False
            await asyncio.sleep(START_RETRY_SECONDS)
        self._violation(f"L1 {self.host} does not start, {START_ATTEMPTS_MAX} times over: {error}")
        return False

    async def _start_once(self) -> tuple[str, BaseException | None]:
        """Start one incarnation. Return its name and the error of a failed start (None if it was killed meanwhile)."""
        self.incarnations += 1
        config = self.configuration()
        if self._cache_is_stale:
            self._go_down()  # the flush failed while it stopped
        if self._disk_failed:
            self.before_return()  # the disk may hold any part of the failed write
        self._disk_failed = self._lacked_resources = False
        name = self.name = f"{self.host}#{self.incarnations}"
        disk = self.disk = self._make_disk(name)
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
            config,
            env,
            on_fatal=partial(self._on_fatal, name),
            on_unexpected=partial(self._on_unexpected, name),
            **self.node_options(name),
        )
        self.node_created(name, node)
        task = self.loop.spawn(name, node.start(), f"start {name}")
        try:
            await task
        except (asyncio.CancelledError, Exception) as error:
            return name, None if name in self.failed_at else error
        if name in self.failed_at:
            return name, None
        self.loop.trace.add(self.loop.steps, self.loop.time(), "up", name)
        self.up.set()
        self.came_up()
        return name, None

    def _make_disk(self, name: str) -> SimDisk:
        disk = SimDisk(self.medium, self.loop, Random(self.rng.getrandbits(64)), name=name, latency=self.disk_latency())
        disk.watchers += self.watchers()
        self.disk_created(disk)
        return disk

    async def _stop_failed_start(self, name: str) -> bool:
        """Stop the remains of a failed start. Return False if it was killed meanwhile: the kill starts it again."""
        assert self.node is not None
        try:
            await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.failed_at:
                self._violation(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
        if name in self.failed_at:
            return False
        self._mark_failed(name)
        self.loop.network.detach_node(name)
        await self._await_tasks(name)
        return True

    def _mark_failed(self, name: str) -> None:
        self.failed_at.setdefault(name, self.loop.steps)

    def _violation(self, text: str) -> None:
        self.violations.append(text)

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
        self.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    def crash(
        self,
        *,
        power: bool,
        downtime: float,
        fail_again_at: int = 0,
        wipe: bool = False,
        silently: bool = False,
    ) -> None:
        """End the process, or with `power` the machine, at this step; start it again after `downtime` seconds.

        `power` loses unflushed data, `wipe` all data. `fail_again_at` ends the next incarnation at that disk operation.
        With `silently`, peers receive no reset.
        """
        name = self.name
        if not self.alive or self.disk is None:
            return  # it has failed already
        power = power or self._cache_is_stale
        self.up.clear()
        self.before_crash()
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
        self.files_left(lose_data=power or wipe)
        if power or wipe:
            self._go_down(wipe=wipe)
        self._supervise(self._come_back(name, downtime), "supervisor")

    def _go_down(self, *, wipe: bool = False) -> None:
        """Power off the machine."""
        effect = self.medium.lose_power(self.rng)
        self.loop.trace.add(self.loop.steps, self.loop.time(), "power-cut", effect)
        if wipe:
            self.medium = Medium()
        self._cache_is_stale = False
        self.boots += 1
        self.lost_data()

    def _supervise(self, work: "asyncio._CoroutineLike[None]", actor: str) -> None:
        self._supervisors = [task for task in self._supervisors if not task.done()]
        self._supervisors.append(self.loop.create_task(work, name=actor, context=self.loop.context_of(actor)))

    async def _come_back(self, name: str, downtime: float) -> None:
        began = self.loop.time()
        await self._await_tasks(name)
        await asyncio.sleep(downtime)
        if self.gone:
            return
        self.before_return()
        await self.start()
        self.downtime_ms += int((self.loop.time() - began) * 1000) + 1

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

    def _arm(self, disk: SimDisk, operations: int, *, power: bool, downtime: float) -> None:
        disk.crash_at_operation = disk.operations + operations
        disk.on_crash = self._crash_callback(power=power, downtime=downtime)

    def _crash_callback(self, *, power: bool, downtime: float) -> "Callable[[], None]":
        return lambda: self.crash(power=power and self.may_lose_data(), downtime=downtime)

    def pause(self, seconds: float) -> None:
        """Pause the process (SIGSTOP) for `seconds`."""
        if self.alive:
            self.loop.stall(self.name, seconds)

    def occupy_disk_threads(self, seconds: float) -> None:
        """Let slow operations occupy all shared threads of the disk."""
        if self.disk is not None:
            self.disk.threads.occupy_all(seconds)

    # ---- hooks ------------------------------------------------------------------------------------------------------

    def configuration(self) -> "Config":
        """Return the configuration of the next incarnation."""
        raise NotImplementedError

    def node_options(self, name: str) -> dict[str, Any]:
        """Return further arguments of `Node` for the incarnation `name`."""
        return {}

    def disk_latency(self) -> DiskLatency:
        """Return the latencies of the disk."""
        return DiskLatency()

    def watchers(self) -> "list[DiskWatcher]":
        """Return the observers of the disk of the next incarnation."""
        return []

    def may_recover(self) -> bool:
        """Return True if a node that refused to start may succeed later."""
        return True

    def may_lose_data(self) -> bool:
        """Return True if a power loss is permitted now."""
        return True

    def count(self, name: str) -> None:
        """Count a rare event."""

    def disk_created(self, disk: SimDisk) -> None:
        """Handle that the disk of the next incarnation exists."""

    def node_created(self, name: str, node: Node) -> None:
        """Handle that the node of an incarnation exists, before its start."""

    def came_up(self) -> None:
        """Handle that the node serves."""

    def before_crash(self) -> None:
        """Handle that the node fails now."""

    def files_left(self, *, lose_data: bool) -> None:
        """Change the files that a failed process left. With `lose_data`, a loss of unflushed data follows."""

    def before_return(self) -> None:
        """Handle that the next incarnation starts on the files."""

    def lost_data(self) -> None:
        """Handle that the host lost its unflushed data."""
