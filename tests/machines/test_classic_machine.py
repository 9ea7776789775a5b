"""Classic groups: the core agrees with an independent model and with the replay of its own log after each operation."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from odradek.coordinator.group.classic.transitions import TRANSITIONS
from tests.machines.classic_machine import (
    CLIENTS,
    COMMITTERS,
    INSTANCES,
    JOINERS,
    MEMBERS,
    PROTOCOL_TYPES,
    PROTOCOLS,
    REBALANCES_MS,
    SESSIONS_MS,
    WAITS_MS,
    ClassicMachine,
)
from tests.machines.transition_visits import note
from tests.support.cell_counts import count
from tests.support.effort import effort, run_machine

if TYPE_CHECKING:
    from collections.abc import Callable


def test_classic_groups_match_the_model() -> None:
    run_machine(ClassicMachine, examples=150, steps=60)


def walk(rng: Random, steps: int) -> None:
    """Run random operations with fixed weights. Hypothesis prefers short runs, which do not visit every transition."""
    machine = ClassicMachine()
    machine.start(delay_ms=rng.choice([0, 3_000]), size=rng.choice([2, 3, *[100] * 6]))

    def join() -> None:
        machine.join(
            rng.choice(CLIENTS),
            rng.choice(JOINERS if machine.model.members else [None, None, None, 0]),
            rng.choice(INSTANCES),
            rng.random() < 0.8,
            rng.choice(PROTOCOLS),
            rng.choice(PROTOCOL_TYPES),
            rng.choice(SESSIONS_MS),
            rng.choice(REBALANCES_MS),
            rng.choice([3, 3, 4, 8, 9, 9]),
            rng.random() < 0.6,
        )

    def sync() -> None:
        machine.sync(rng.choice(MEMBERS), rng.choice(INSTANCES), rng.random() < 0.8, rng.random() < 0.1, [0, 1], None)

    def leave() -> None:
        machine.leave([(rng.choice([None, *MEMBERS]), rng.choice(INSTANCES)) for _ in range(rng.randint(1, 2))])

    def use_pending_id() -> None:
        if machine.model.pending:
            machine.ids.append(machine.model.pending[-1])
            machine.join("a", 0, None, True, PROTOCOLS[3], "consumer", 10_000, 6_000, 9, False)

    def exceed_group_max_size() -> None:
        if rng.random() < 0.3:
            machine.group_max_size_changes(1)
            machine.crash(really=True)

    steps_of: list[tuple[int, Callable[[], object]]] = [
        (10, join),
        (5, sync),
        (6, lambda: machine.the_leader_syncs(assigned=rng.random() < 0.8)),
        (4, lambda: machine.heartbeat(rng.choice(MEMBERS), rng.choice(INSTANCES), rng.random() < 0.7, False)),
        (2, leave),
        (
            3,
            lambda: machine.commit(rng.choice(COMMITTERS), None, rng.choice([0, 0, 1, None, None]), rng.random() < 0.5),
        ),
        (1, lambda: machine.delete(really=rng.random() < 0.4)),
        (3, lambda: machine.time_passes(rng.choice(WAITS_MS))),
        (5, lambda: machine.members_heartbeat(rng.choice([1, 1, 3]))),
        (1, lambda: machine.log_refuses_appends(refuses=rng.random() < 0.1)),
        (1, lambda: machine.group_max_size_changes(rng.choice([1, 2, *[100] * 8]))),
        (1, lambda: machine.crash(really=rng.random() < 0.5)),
        (2, use_pending_id),
        (6, lambda: machine.members_rejoin(rng.choice([0, 0, 1, 2]))),
        (1, exceed_group_max_size),
        (1, machine.stale_timers_fire),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.core_matches_model()
        machine.counters_match_members()
        machine.replayed_log_matches_last_record()


def test_long_walks_visit_every_transition() -> None:
    counts = count(TRANSITIONS)
    before = dict(counts.visits)
    for seed in range(effort(200)):
        walk(Random(seed), steps=120)
    unvisited = note(
        "classic groups",
        (
            (event.name, state.name, counts.visits[state, event] - before[state, event])
            for state, event in counts.possible
        ),
    )
    assert unvisited == []
