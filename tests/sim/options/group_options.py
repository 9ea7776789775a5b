"""Options of runs with groups, from a generator of their own: the other options of a seed stay the same."""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import FRAME_KINDS, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

JOIN, HEARTBEAT, LEAVE, SYNC, COMMIT, OFFSETS, ADD_OFFSETS, TXN_COMMIT, CONSUMER_HEARTBEAT = (
    11,
    12,
    13,
    14,
    8,
    9,
    25,
    28,
    68,
)
END, MARKERS = 26, 27
GROUP_COORDINATOR: Final = "group coordinator"

GROUPS_PROBABILITY: Final = 0.55
RARITIES_PROBABILITY: Final = 0.25
CROWD_PROBABILITY: Final = 0.4
CROWDED_SIZE_MAX: Final = 2
"""Value of group.max.size on restarted brokers, in runs with a size limit."""
CLASSIC, CONSUMER, MIXED = "classic", "consumer", "mixed"
COPIER, READER = "copier", "reader"
"""Copiers write one record per record read, with its offset in the same transaction. Readers commit offsets only."""

FRAMES: Final = (
    TXN_COMMIT, TXN_COMMIT, TXN_COMMIT, COMMIT, JOIN, SYNC, HEARTBEAT, LEAVE, ADD_OFFSETS, CONSUMER_HEARTBEAT,
    CONSUMER_HEARTBEAT, OFFSETS, END, MARKERS,
)  # fmt: skip
KINDS_OF_SINGLE: Final = ("kill", "frame", "frame", "lag", "leadership")
KINDS: Final = (
    "kill",
    "kill",
    "pause",
    "cut",
    "frame",
    "frame",
    "frame",
    "move_leader",
    "move_leader",
    "reassign",
    "restart",
)
FAULTS_MIN, FAULTS_MAX = 3, 6


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group: its name, the task and the protocol of its members, and their number."""

    name: str
    task: str
    protocol: str
    members: int
    static: int
    """Number of members with an instance id."""
    restless: bool = False
    """True for members that behave as few clients do: see workloads/unusual_members.py."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Group settings of a run. Probabilities apply to each turn of a member."""

    plans: tuple[GroupPlan, ...]
    partitions: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    initial_delay_ms: int
    assignment_interval_ms: int
    assignor: str
    segment_bytes: int
    think_seconds: float
    leave: float
    fail: float
    pause: float
    zombie: float
    abort: float
    own_ids: float
    """Probability that a new process takes the transactional id of its failed predecessor. Others use a new one."""
    transactions: int
    """Minimum number of transactions that all copiers together begin under faults."""
    alone: str = ""
    """Group of a simple consumer without membership; empty: the run has none."""
    size_max: int = 0
    """group.max.size on restarted brokers and on every second one; 0: unlimited."""

    def describe(self) -> str:
        groups = ", ".join(
            f"{plan.members} {'restless ' if plan.restless else ''}{plan.protocol} {plan.task}s ({plan.static} static)"
            for plan in self.plans
        )
        alone = ", a simple consumer" if self.alone else ""
        limit = f", at most {self.size_max} members" if self.size_max else ""
        return f"groups: {groups}{alone}{limit} on {self.partitions} partitions"


def generate_groups(options: "Options", *, wanted: bool | None = None) -> None:
    """Add groups to part of the runs, or as `wanted` says. Lossy runs have none."""
    rng = Random(options.seed * 15_485_863 + 11)
    selected = rng.random() < GROUPS_PROBABILITY
    if options.lossy or not (selected if wanted is None else wanted):
        return
    single = options.brokers == 1
    session_ms = rng.choice((400, 1000, 2000) if single else (1000, 2500))
    options.groups = GroupOptions(
        plans=_generate_plans(rng),
        partitions=rng.choice((1, 2, 3)),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rng.choice((session_ms, 2 * session_ms)),
        initial_delay_ms=rng.choice((0, 50, 300)),
        assignment_interval_ms=rng.choice((0, 0, 300)),
        assignor=rng.choice(("uniform", "range")),
        segment_bytes=rng.choice((2000, 10_000, 1 << 20)),
        think_seconds=rng.choice((0.1, 0.3)),
        leave=rng.choice((0.01, 0.04)),
        fail=rng.choice((0.01, 0.04)),
        pause=rng.choice((0.03, 0.1)),
        zombie=rng.choice((0.0, 0.3, 0.8)),
        abort=rng.choice((0.05, 0.2)),
        own_ids=rng.choice((0.0, 0.5, 1.0)),
        transactions=16 if single else 10,
    )
    options.groups = _with_rarities(options.groups, Random(options.seed * 32_452_843 + 7))
    kinds = KINDS_OF_SINGLE if single else KINDS
    group_faults = [
        _generate_fault(rng, options, rng.choice(kinds)) for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX))
    ]
    options.faults = in_order([*options.faults, *group_faults])


def _generate_plans(rng: Random) -> tuple[GroupPlan, ...]:
    plans = [_generate_plan(rng, "copy", COPIER)]
    if rng.random() < 0.5:
        plans.append(_generate_plan(rng, "read", READER))
    return tuple(plans)


def _with_rarities(groups: GroupOptions, rng: Random) -> GroupOptions:
    """Add restless members, a simple consumer, or both to part of the runs, from a generator of their own."""
    restless, alone = rng.random() < RARITIES_PROBABILITY, rng.random() < RARITIES_PROBABILITY
    crowded = rng.random() < CROWD_PROBABILITY
    members = CROWDED_SIZE_MAX + 1 if crowded else 2
    plan = GroupPlan(
        name=f"rest-{rng.randrange(100)}",
        task=READER,
        protocol=rng.choice((CLASSIC, CLASSIC, MIXED) if crowded else (CLASSIC, CONSUMER, CONSUMER, MIXED)),
        members=members,
        static=rng.choice((0, members)),
        restless=True,
    )
    return replace(
        groups,
        plans=(*groups.plans, plan) if restless else groups.plans,
        alone=f"alone-{rng.randrange(100)}" if alone else "",
        size_max=CROWDED_SIZE_MAX if restless and crowded else 0,
    )


def _generate_plan(rng: Random, name: str, task: str) -> GroupPlan:
    members = rng.randint(2, 3)
    return GroupPlan(
        name=f"{name}-{rng.randrange(100)}",
        task=task,
        protocol=rng.choice((CLASSIC, CONSUMER, MIXED)),
        members=members,
        static=rng.choice((0, 0, 1, members)),
    )


def _generate_fault(rng: Random, options: "Options", kind: str) -> Fault:
    last = max((fault.operations for fault in options.faults), default=200)
    fault = Fault(
        kind,
        rng.randrange(20, max(21, last)),
        rng.randrange(500),
        target=GROUP_COORDINATOR,
        number=rng.randrange(64),
        seconds=rng.random() * rng.choice((0.1, 1.0, 3.0)),
        other="all",
    )
    if kind != "frame":
        return fault
    held = rng.choice(("hold_request", "replay_request", *FRAME_KINDS))
    api_key = rng.choice(FRAMES)
    if options.brokers == 1:
        return replace(fault, kind=held, api_key=api_key, target="", other="")
    return replace(fault, kind=held, api_key=api_key, other="brokers" if api_key == MARKERS else "clients", target="")
