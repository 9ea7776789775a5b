"""Groups of a run: their members come and go during the faults, and must read everything after them."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.sim.evidence.inspector import SETUP_ATTEMPTS_MAX, Inspector
from tests.sim.history import OK, Operation
from tests.sim.options.group_options import CLASSIC, CONSUMER, COPIER, GroupPlan
from tests.sim.workloads.client import GROUP_KEY, NONE
from tests.sim.workloads.copiers import FAILED, LEFT, Copier, GroupReader, origin_of
from tests.sim.workloads.membership import ClassicMember, ConsumerMember
from tests.sim.workloads.offsets import fetch_offsets
from tests.sim.workloads.producers import Dialect
from tests.sim.workloads.simple_consumers import SimpleConsumer, Visitor
from tests.sim.workloads.unusual_members import RESTLESS
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from tests.sim.world import World

ENOUGH_SECONDS_MAX: Final = 20.0
DRAIN_SECONDS_MAX: Final = 90.0
HELD_SECONDS_MAX: Final = 4.0
"""Time after which a request delayed by the network has arrived, in seconds."""
POLL_SECONDS: Final = 0.25
RESTART_GAP_SECONDS: Final = 0.5
FINDINGS_MAX: Final = 3


class GroupRunner:
    """Members of one group. Each slot runs one process after another: one fails or leaves, the next one joins."""

    def __init__(self, world: "World", plan: GroupPlan, dialects: list[Dialect]) -> None:
        self.world = world
        self.plan = plan
        self.rng = world.rng
        self._dialects = dialects

    def start(self) -> list[asyncio.Task[None]]:
        loop = self.world.loop
        return [
            loop.spawn(f"c:{self.plan.name}-{slot}", self._fill(slot), f"{self.plan.name}-{slot}")
            for slot in range(self.plan.members)
        ]

    async def _fill(self, slot: int) -> None:
        """Run the processes of one slot one after another. A sleeping process may be replaced while it still runs."""
        loop, groups = self.world.loop, self.world.monitor.groups
        assert self.world.options.groups is not None
        # Longer than a rebalance: a stable group then completes a join phase without the restarting members.
        gap = self.world.options.groups.session_timeout_ms / 500 if self.plan.restless else RESTART_GAP_SECONDS
        running: list[asyncio.Task[str]] = []
        incarnation = -1
        while not groups.over:
            incarnation += 1
            process = self._process(slot, incarnation)
            name = f"{self.plan.name}-{slot}.{incarnation}"
            task = loop.spawn(f"c:{name}", process.run_member(), name)
            running.append(task)
            replaceable = await self._wait(task, process.replaceable)
            if replaceable:
                self.world.count("process replaced while it sleeps")
                continue
            if task.result() in {FAILED, LEFT}:
                self.world.count(f"member {task.result()}")
            await asyncio.sleep(self.rng.random() * gap)
        for task in running:
            await task

    async def _wait(self, task: "asyncio.Task[str]", replaceable: asyncio.Event) -> bool:
        """Return True if the process sleeps and is to be replaced, False when it has ended."""
        while not task.done():
            if replaceable.is_set():
                replaceable.clear()
                if self.rng.random() < 0.3 and not self.world.monitor.groups.calm:
                    return True
            await asyncio.sleep(POLL_SECONDS / 2)
        return False

    def _process(self, slot: int, incarnation: int) -> Copier | GroupReader:
        world, plan = self.world, self.plan
        assert world.options.groups is not None
        name = f"{plan.name}-{slot}.{incarnation}"
        instance = f"{plan.name}-instance-{slot}" if slot < plan.static else None
        kind = {CLASSIC: ClassicMember, CONSUMER: ConsumerMember}.get(plan.protocol)
        if kind is None:
            kind = self.rng.choice((ClassicMember, ConsumerMember))
        if plan.restless:
            kind = RESTLESS[kind]
        process: Copier | GroupReader
        if plan.task == COPIER:
            own = self.rng.random() < world.options.groups.own_ids
            transactional_id = f"{plan.name}/{slot}" if own else f"{plan.name}/{slot}.{incarnation}"
            process = Copier(world, name, self.rng.choice(self._dialects), transactional_id)
            process.timeout_ms = world.options.transaction_timeout_ms
        else:
            process = GroupReader(world, name)
        process.become(kind(process, plan.name, f"{name}-member", instance))
        return process


class Groups:
    """All groups of a run; empty in a run without groups."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.final: list[Operation] = []
        """OffsetFetch operations of all offsets after the faults, and after the last restart."""
        self._tasks: list[asyncio.Task[None] | asyncio.Task[str]] = []

    @property
    def _simple_group(self) -> str:
        return self.world.options.groups.alone if self.world.options.groups is not None else ""

    @property
    def plans(self) -> tuple[GroupPlan, ...]:
        return self.world.options.groups.plans if self.world.options.groups is not None else ()

    async def set_up(self, inspector: Inspector) -> None:
        """Wait until every group has a coordinator. The first request makes the broker create `__consumer_offsets`."""
        if not self.plans:
            return
        assert self.world.options.groups is not None
        watch = self.world.monitor.groups
        watch.partitions = self.world.options.groups.partitions
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[plan.name for plan in self.plans])
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await inspector.send_with_retries(request, 4)
            if all(coordinator.error_code == NONE for coordinator in response.coordinators):  # type: ignore[attr-defined]
                break
            await asyncio.sleep(0.05)
        else:
            raise TimeoutError("no coordinator of groups")
        watch.topic_id = await inspector.topic_id(TOPIC)

    def start(self, dialects: list[Dialect]) -> None:
        for plan in self.plans:
            self._tasks += GroupRunner(self.world, plan, dialects).start()
        if self._simple_group:
            for client in (
                SimpleConsumer(self.world, self._simple_group, dialects[0]),
                Visitor(self.world, self._simple_group),
            ):
                self._tasks.append(self.world.loop.spawn(f"c:{client.name}", client.run_member(), client.name))

    async def wait_for_transactions(self) -> None:
        """Wait until the copiers have begun the minimum number of transactions, for at most ENOUGH_SECONDS_MAX."""
        options = self.world.options.groups
        if options is None:
            return
        deadline = self.world.now() + ENOUGH_SECONDS_MAX
        while self.world.monitor.groups.transactions < options.transactions and self.world.now() < deadline:
            await asyncio.sleep(POLL_SECONDS)

    def set_calm(self) -> None:
        self.world.monitor.groups.calm = True

    async def drain(self, timeout_seconds: float = DRAIN_SECONDS_MAX) -> list[str]:
        """L1: after the faults, the groups read everything; then their members leave. Return the findings."""
        deadline = self.world.now() + timeout_seconds
        while self.world.now() < deadline and any(True for _ in self._unread()):
            await asyncio.sleep(POLL_SECONDS)
        findings = [
            f"L1 {problem} {timeout_seconds:.0f} s after healing" for problem in list(self._unread())[:FINDINGS_MAX]
        ]
        self.world.monitor.groups.over = True
        for task in self._tasks:
            await asyncio.wait_for(task, timeout_seconds)
        if self._simple_group:
            await asyncio.sleep(HELD_SECONDS_MAX)  # delayed requests of the simple consumer may still arrive
        return findings

    def _unread(self) -> Iterator[str]:
        committed = self.world.monitor.groups.committed() if self.plans else {}
        for plan in self.plans:
            for (topic, index), model in self.world.monitor.partitions.items():
                if topic != TOPIC:
                    continue
                last = max((slot.offset for slot in model.visible() if origin_of(slot.value) is None), default=-1)
                group_offset = committed.get((plan.name, topic, index), 0)
                if group_offset <= last:
                    yield (
                        f"group {plan.name} stays at {group_offset} of {topic}-{index}, which has a record at {last}"
                    )

    async def fetch_final_offsets(self, inspector: Inspector) -> None:
        """Fetch the offsets of all groups from their coordinators."""
        for group in (*(plan.name for plan in self.plans), *([self._simple_group] if self._simple_group else ())):
            self.final.append(await self._final_offsets(inspector, group))

    async def _final_offsets(self, inspector: Inspector, group: str) -> Operation:
        for _ in range(SETUP_ATTEMPTS_MAX):
            operation = await fetch_offsets(inspector, group, self.world.partitions, stable=True, final=True)
            if operation.outcome == OK:
                return operation
            await asyncio.sleep(0.05)
        raise TimeoutError(f"OffsetFetch of {group} fails (error {operation.error})")
