"""Groups of a run: their members come and go while the faults strike, and have to read everything when these have stopped."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.sim.evidence.inspector import SETUP_ATTEMPTS_MAX, Inspector
from tests.sim.history import OK, Operation
from tests.sim.options.group_options import CLASSIC, CONSUMER, COPIER, GroupPlan
from tests.sim.workloads.client import GROUP_KEY, NONE
from tests.sim.workloads.copiers import DIED, LEFT, Copier, GroupReader, origin_of
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
"""A request that the network holds back has arrived by then."""
LOOK_SECONDS: Final = 0.25
LIFE_GAP_SECONDS: Final = 0.5
FINDINGS_MAX: Final = 3


class Crew:
    """The members of one group, each a row of processes: one dies or leaves, the next one comes."""

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
        """One process after another; for a while also one beside another, when the first has only slept."""
        loop, groups = self.world.loop, self.world.monitor.groups
        assert self.world.options.groups is not None
        # A group at rest whose members are away for longer than a rebalance waits for them in vain.
        gap = self.world.options.groups.session_timeout_ms / 500 if self.plan.restless else LIFE_GAP_SECONDS
        running: list[asyncio.Task[str]] = []
        life = -1
        while not groups.over:
            life += 1
            process = self._process(slot, life)
            name = f"{self.plan.name}-{slot}.{life}"
            task = loop.spawn(f"c:{name}", process.run_member(), name)
            running.append(task)
            doubled = await self._wait(task, process.doubled)
            if doubled:
                self.world.count("process replaced while it sleeps")
                continue
            if task.result() in {DIED, LEFT}:
                self.world.count(f"member {task.result()}")
            await asyncio.sleep(self.rng.random() * gap)
        for task in running:
            await task

    async def _wait(self, task: "asyncio.Task[str]", doubled: asyncio.Event) -> bool:
        """True when it sleeps and is to be replaced, False when it has ended."""
        while not task.done():
            if doubled.is_set():
                doubled.clear()
                if self.rng.random() < 0.3 and not self.world.monitor.groups.calm:
                    return True
            await asyncio.sleep(LOOK_SECONDS / 2)
        return False

    def _process(self, slot: int, life: int) -> Copier | GroupReader:
        world, plan = self.world, self.plan
        assert world.options.groups is not None
        name = f"{plan.name}-{slot}.{life}"
        instance = f"{plan.name}-instance-{slot}" if slot < plan.static else None
        kind = {CLASSIC: ClassicMember, CONSUMER: ConsumerMember}.get(plan.protocol)
        if kind is None:
            kind = self.rng.choice((ClassicMember, ConsumerMember))
        if plan.restless:
            kind = RESTLESS[kind]
        process: Copier | GroupReader
        if plan.does == COPIER:
            own = self.rng.random() < world.options.groups.own_ids
            transactional_id = f"{plan.name}/{slot}" if own else f"{plan.name}/{slot}.{life}"
            process = Copier(world, name, self.rng.choice(self._dialects), transactional_id)
            process.timeout_ms = world.options.transaction_timeout_ms
        else:
            process = GroupReader(world, name)
        process.become(kind(process, plan.name, f"{name}-member", instance))
        return process


class Groups:
    """All crews of a run; without groups, nothing."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.final: list[Operation] = []
        """What the coordinators say of all offsets when everything is at rest, and after the last restart."""
        self._tasks: list[asyncio.Task[None] | asyncio.Task[str]] = []

    @property
    def _alone(self) -> str:
        return self.world.options.groups.alone if self.world.options.groups is not None else ""

    @property
    def plans(self) -> tuple[GroupPlan, ...]:
        return self.world.options.groups.plans if self.world.options.groups is not None else ()

    async def set_up(self, inspector: Inspector) -> None:
        """Until every group has a coordinator: the first question makes the broker create `__consumer_offsets`."""
        if not self.plans:
            return
        assert self.world.options.groups is not None
        watch = self.world.monitor.groups
        watch.partitions = self.world.options.groups.partitions
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[plan.name for plan in self.plans])
        for _ in range(SETUP_ATTEMPTS_MAX):
            response = await inspector.send_with_retries(request, 4)
            if all(each.error_code == NONE for each in response.coordinators):  # type: ignore[attr-defined]
                break
            await asyncio.sleep(0.05)
        else:
            raise TimeoutError("no coordinator of groups")
        watch.topic_id = await inspector.topic_id(TOPIC)

    def start(self, dialects: list[Dialect]) -> None:
        for plan in self.plans:
            self._tasks += Crew(self.world, plan, dialects).start()
        if self._alone:
            for each in (SimpleConsumer(self.world, self._alone, dialects[0]), Visitor(self.world, self._alone)):
                self._tasks.append(self.world.loop.spawn(f"c:{each.name}", each.run_member(), each.name))

    async def enough(self) -> None:
        """Until the copiers have begun what a run needs of them to prove something, or are held up for long."""
        options = self.world.options.groups
        if options is None:
            return
        deadline = self.world.now() + ENOUGH_SECONDS_MAX
        while self.world.monitor.groups.transactions < options.transactions and self.world.now() < deadline:
            await asyncio.sleep(LOOK_SECONDS)

    def calm_down(self) -> None:
        self.world.monitor.groups.calm = True

    async def drain(self, patience: float = DRAIN_SECONDS_MAX) -> list[str]:
        """L1: with the faults gone, the groups read everything that is there; then their members go."""
        deadline = self.world.now() + patience
        while self.world.now() < deadline and any(True for _ in self._unread()):
            await asyncio.sleep(LOOK_SECONDS)
        findings = [f"L1 {left} {patience:.0f} s after healing" for left in list(self._unread())[:FINDINGS_MAX]]
        self.world.monitor.groups.over = True
        for task in self._tasks:
            await asyncio.wait_for(task, patience)
        if self._alone:
            await asyncio.sleep(HELD_SECONDS_MAX)  # nobody fences whom no group knows
        return findings

    def _unread(self) -> Iterator[str]:
        committed = self.world.monitor.groups.committed() if self.plans else {}
        for plan in self.plans:
            for (topic, index), model in self.world.monitor.partitions.items():
                if topic != TOPIC:
                    continue
                last = max((slot.offset for slot in model.visible() if origin_of(slot.value) is None), default=-1)
                at = committed.get((plan.name, topic, index), 0)
                if at <= last:
                    yield f"group {plan.name} stays at {at} of {topic}-{index}, which has a record for it at {last}"

    async def ask_for_offsets(self, inspector: Inspector) -> None:
        """What the coordinators say of all offsets now."""
        for group in (*(plan.name for plan in self.plans), *([self._alone] if self._alone else ())):
            self.final.append(await self._final_offsets(inspector, group))

    async def _final_offsets(self, inspector: Inspector, group: str) -> Operation:
        for _ in range(SETUP_ATTEMPTS_MAX):
            found = await fetch_offsets(inspector, group, self.world.partitions, stable=True, final=True)
            if found.outcome == OK:
                return found
            await asyncio.sleep(0.05)
        raise TimeoutError(f"the offsets of {group} are not told (error {found.error})")
