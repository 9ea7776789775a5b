"""The node under test: `broker.node.Node`, unmodified, on the simulated loop, disk, clock and network. It dies and comes back on what it left."""

import asyncio
import traceback
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from broker.config_source import load
from broker.env import Env
from broker.node import Node
from protocol.errors import Refusal
from tests.sim.clock import SimClock
from tests.sim.disk import Detached, DiskFault, DiskLatency, SimDisk
from tests.sim.gate import GateKeeper
from tests.sim.loop import SimLoop
from tests.sim.medium import Medium, flip_rebuildable
from tests.sim.options import Options
from tests.sim.world import HOST, PORT

if TYPE_CHECKING:
    from broker.config import Config
    from tests.sim.monitor import Monitor

ROOT: Final = "/data"
NODE_ID: Final = 1
LEAK_CHECKS_MAX: Final = 500
FLIP_PROBABILITY: Final = 0.3
LEAK_CHECK_SECONDS: Final = 0.001


def make_config(options: Options) -> "Config":
    """What the node is started with: small segments, few coordinator partitions, short sweeps."""
    settings: dict[str, Any] = {
        "log.dirs": ROOT,
        "node.id": NODE_ID,
        "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{PORT}",
        "auto.create.topics.enable": "false",
        "log.segment.bytes": options.segment_bytes,
        "log.index.interval.bytes": options.index_interval_bytes,
        "transaction.state.log.num.partitions": options.transaction_partitions,
        "transaction.state.log.segment.bytes": max(options.segment_bytes, 4000),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": options.scan_interval_ms,
        "transactional.id.expiration.ms": options.id_expiration_ms,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
        "replica.high.watermark.checkpoint.interval.ms": 700,
        "log.flush.offset.checkpoint.interval.ms": 900,
        "log.flush.start.offset.checkpoint.interval.ms": 900,
        "odradek.initial.transaction.version": options.transaction_version,
        "odradek.log.level": "error",
    }
    if options.flush:
        settings["log.flush.interval.messages"] = 1
    return load(environment={}, assignments=[f"{name}={value}" for name, value in settings.items()])


class Cluster:
    """One node, life after life. `crash` may be called at any step; a supervisor brings the node back."""

    def __init__(self, loop: SimLoop, rng: Random, options: Options) -> None:
        self.loop = loop
        self.rng = rng
        self.options = options
        self.medium = Medium()
        self.gates = GateKeeper(loop)
        self.clock = SimClock(loop)
        self.clients_clock = SimClock(loop)
        self.address = (HOST, PORT)
        self.monitor: Monitor | None = None
        self.node: Node | None = None
        self.disk: SimDisk | None = None
        self.name = ""
        self.lives = 0
        self.up = asyncio.Event()
        self.violations: list[str] = []
        self.died_at: dict[str, int] = {}
        self.downtime_ms = 0
        self._die_again_at = 0
        self._disk_failed = False
        self._cache_lies = False
        self._restarting: asyncio.Task[None] | None = None
        self._config = make_config(options)

    # -- life

    async def start(self) -> bool:
        """Start the node on what the disk holds. False when it died on the way."""
        self.lives += 1
        self._disk_failed = self._cache_lies = False
        name = self.name = f"node#{self.lives}"
        disk = self.disk = self._make_disk(name)
        env = Env(disk=disk, clock=self.clock, rng=Random(self.rng.getrandbits(64)), commit_gate=self.gates)
        if self._die_again_at:
            self._arm(disk, self._die_again_at, power=False, downtime=0.05)
            self._die_again_at = 0
        node = self.node = Node(
            self._config, env, on_fatal=partial(self._on_fatal, name), on_unexpected=partial(self._on_unexpected, name)
        )
        task = self.loop.spawn(name, node.start(), f"start {name}")
        try:
            await task
        except (asyncio.CancelledError, Exception) as error:
            if name in self.died_at:
                return False
            self.violations.append(f"L1 {name} does not start: {''.join(traceback.format_exception(error))}")
            return False
        if name in self.died_at:
            return False
        self.loop.trace.add(self.loop.steps, self.loop.time(), "up", name)
        self.up.set()
        if self.monitor is not None:
            self.violations.extend(self.monitor.differences(name, node.partitions))
        return True

    def _make_disk(self, name: str) -> SimDisk:
        latency = DiskLatency(
            sync_seconds_max=self.options.sync_seconds_max,
            cold_probability=self.options.cold_probability,
        )
        disk = SimDisk(self.medium, self.loop, Random(self.rng.getrandbits(64)), name=name, latency=latency)
        if self.monitor is not None:
            disk.observers.append(self.monitor.on_write)
        return disk

    def _on_fatal(self, name: str, reason: str) -> None:
        """The node says that it cannot go on. It may, when its disk has failed; whoever runs it starts it again."""
        if name in self.died_at:
            return
        if not self._disk_failed:
            self.violations.append(f"{name} gives up: {reason}")
        self.loop.call_soon(self._crash_if, name, context=self.loop.context_of("operator"))

    def _on_unexpected(self, name: str, where: str, error: BaseException) -> None:
        """A bug, as the node itself sees it."""
        if name not in self.died_at and not (self._disk_failed and isinstance(error, OSError)):
            self.violations.append(f"{name}: unexpected in {where}: {''.join(traceback.format_exception(error))}")

    def _crash_if(self, name: str) -> None:
        if self.name == name:
            self.crash(power=False, downtime=0.05)

    async def stop(self) -> None:
        """Stop cleanly and forget the node."""
        assert self.node is not None
        self.up.clear()
        name = self.name
        await self.loop.spawn(name, self.node.stop(), f"stop {name}")
        if name in self.died_at:
            raise asyncio.CancelledError
        self.died_at[name] = self.loop.steps
        self.loop.network.detach_node(name)
        await self._bury(name)

    def restart(self, *, downtime: float) -> None:
        """Stop cleanly and come back (SIGTERM)."""
        if self.up.is_set() and self.name not in self.died_at and not self._cache_lies:
            self.loop.create_task(
                self._restart_cleanly(self.name, downtime), name="operator", context=self.loop.context_of("operator")
            )

    async def _restart_cleanly(self, name: str, downtime: float) -> None:
        began = self.loop.time()
        try:
            await self.stop()
        except (asyncio.CancelledError, Exception) as error:
            if name not in self.died_at:
                self.violations.append(f"{name} does not stop: {''.join(traceback.format_exception(error))}")
            return  # it died on the way; who killed it brings it back
        await asyncio.sleep(downtime)
        await self.start()
        self.downtime_ms += int((self.loop.time() - began) * 1000) + 1

    def crash(self, *, power: bool, downtime: float, die_again_at: int = 0) -> None:
        """The process is gone, or the machine. What is un-synced is lost with `power`; it comes back after `downtime` seconds."""
        name = self.name
        if name in self.died_at or self.disk is None:
            return  # it is dead already
        power = power or self._cache_lies
        self.up.clear()
        if self.monitor is not None:
            self.monitor.before_crash()
        self.died_at[name] = self.loop.steps
        self.loop.resume(name)
        self._die_again_at = die_again_at
        self.loop.trace.add(self.loop.steps, self.loop.time(), "crash", name, power)
        self.disk.detach()
        self.loop.network.detach_node(name)
        for task in self.loop.tasks_of(name):
            task.cancel()
        if self.rng.random() < FLIP_PROBABILITY:
            flipped = flip_rebuildable(self.medium, ROOT, self.rng)
            self.loop.trace.add(self.loop.steps, self.loop.time(), "bit-flip", flipped)
        if power:
            cut = self.medium.lose_power(self.rng)
            self.loop.trace.add(self.loop.steps, self.loop.time(), "power-cut", cut)
            if self.options.lossy:
                self.gates.forget()
        self._restarting = self.loop.create_task(
            self._restart(name, downtime), name="supervisor", context=self.loop.context_of("supervisor")
        )

    async def _restart(self, name: str, downtime: float) -> None:
        began = self.loop.time()
        await self._bury(name)
        await asyncio.sleep(downtime)
        if self.monitor is not None:
            self.monitor.reload()
        await self.start()
        self.downtime_ms += int((self.loop.time() - began) * 1000) + 1

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
            self.violations.append(f"tasks of {name} outlive it: {leaked}")
        self.loop.bury(name)

    # -- faults

    def die_at_disk(self, operations: int, *, power: bool, downtime: float) -> None:
        """Die in the middle of a disk operation, that many from now."""
        if self.disk is not None and self.name not in self.died_at:
            self._arm(self.disk, operations, power=power, downtime=downtime)

    def _arm(self, disk: SimDisk, operations: int, *, power: bool, downtime: float) -> None:
        disk.die_at_operation = disk.operations + operations
        disk.on_death = lambda: self.crash(power=power, downtime=downtime)

    def disk_fault(self, fault: DiskFault, *, restart_after: float) -> None:
        """The next such operation fails; the operator restarts the node a while later.

        After a failed sync the whole machine: what the page cache still shows was never written, and no restart of the process would find out.
        """
        disk = self.disk
        if disk is None or disk.detached:
            return
        disk.faults.append(fault)
        name = self.name

        def struck() -> None:
            self._disk_failed = True
            self._cache_lies = fault.operation == "sync"
            self.loop.call_later(restart_after, self._crash_if, name, context=self.loop.context_of("operator"))

        disk.on_fault = struck

    def disarm(self) -> None:
        if self.disk is not None:
            self.disk.faults.clear()
            self.disk.die_at_operation = None
        self._die_again_at = 0

    async def lose_leadership(self, seconds: float) -> None:
        """The controller fences the broker, so that it loses every partition, and takes it back later."""
        await self._order(fence=True)
        await asyncio.sleep(seconds)
        await self._order(fence=False)

    async def _order(self, *, fence: bool) -> None:
        node, name = self.node, self.name
        if node is None or not self.up.is_set():
            return

        async def submit() -> None:
            await (node.controller.fence_broker(NODE_ID) if fence else node.controller.unfence_broker(NODE_ID))

        try:
            await self.loop.spawn(name, submit(), "leadership")
        except (asyncio.CancelledError, Exception) as error:
            self.loop.trace.add(self.loop.steps, self.loop.time(), "leadership-refused", type(error).__name__)

    # -- judgement

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
