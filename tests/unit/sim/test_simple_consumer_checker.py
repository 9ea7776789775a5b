"""The checker of simple consumers against hand-written histories, and what of them is drawn."""

from typing import Any

import pytest

from tests.sim.checkers.evidence import Evidence, GroupEvidence
from tests.sim.checkers.simple_consumers import check_simple_consumer
from tests.sim.cluster.node_config import make_config
from tests.sim.history import FAIL, INFO, OFFSETS, OK, SIMPLE, History
from tests.sim.options.group_options import CROWDED_SIZE_MAX
from tests.sim.options.run_options import generate_options

GROUP = "alone-1"
P0, P1 = ("ledger", 0), ("ledger", 1)
Said = tuple[str, dict[Any, int]]
"""Outcome, and the offset of each partition; -1: deleted."""


def findings(*steps: Said | dict[Any, int], coordinated: bool = True) -> list[str]:
    """Of what was said (a pair) and told (a dict), in turn."""
    history = History()
    for step in steps:
        if isinstance(step, dict):
            told = history.invoke(OFFSETS, "x", 0.0, group=GROUP, partitions=(P0, P1), offsets=tuple(step.items()))
            history.complete(told, OK, 0.0, coordinated=coordinated)
            continue
        outcome, offsets = step
        history.complete(history.invoke(SIMPLE, "x", 0.0, group=GROUP, offsets=tuple(offsets.items())), outcome, 0.0)
    evidence = Evidence(history, {}, groups=GroupEvidence((), (P0, P1), alone=GROUP))
    return list(check_simple_consumer(evidence))


def test_what_was_said_last_is_told() -> None:
    assert findings({}, (OK, {P0: 1}), {P0: 1}, (OK, {P1: 2}), (OK, {P0: -1}), {P1: 2}) == []
    assert findings((OK, {P0: 1}), (FAIL, {P0: 2}), {P0: 1}) == []


def test_what_it_never_heard_the_end_of_may_have_happened_or_happen_yet() -> None:
    for told in ({P0: 1}, {P0: 2}):
        assert findings((OK, {P0: 1}), (INFO, {P0: 2}), told) == []
    assert findings((INFO, {P0: 2}), (OK, {P0: 3}), {P0: 3}, {P0: 2}) == []
    assert findings((OK, {P0: 1}), (INFO, {P0: -1, P1: -1}), {}) == []


@pytest.mark.parametrize(
    "steps",
    [
        ((OK, {P0: 1}), {}),
        ((OK, {P0: 1}), (OK, {P0: 2}), {P0: 1}),
        ((OK, {P0: 1}), (OK, {P0: -1}), {P0: 1}),
        ((OK, {P0: 1}), (FAIL, {P0: -1}), {}),
        ((OK, {P0: 1}), (FAIL, {P0: 2}), {P0: 2}),
        ((OK, {P0: 1}), {P0: 1, P1: 7}),
    ],
)
def test_anything_else_is_found(steps: tuple[Any, ...]) -> None:
    (finding,) = findings(*steps)
    assert finding.startswith("I7 alone-1")
    assert findings(*steps, coordinated=False) == []


def test_rarities_are_drawn_apart() -> None:
    """A seed keeps the groups that it had; in part of the runs others are added."""
    drawn = [groups for seed in range(60) if (groups := generate_options(seed).groups) is not None]
    assert 0 < sum(1 for groups in drawn if groups.plans[-1].restless) < len(drawn)
    assert 0 < sum(1 for groups in drawn if groups.alone) < len(drawn)
    for groups in drawn:
        assert not any(plan.restless for plan in groups.plans[:-1])
        assert not groups.size_max or groups.plans[-1].members > groups.size_max


def test_a_broker_that_is_started_again_has_room_for_fewer_members() -> None:
    crowded = (generate_options(seed, brokers=3) for seed in range(200))
    options = next(each for each in crowded if each.groups is not None and each.groups.size_max)
    assert make_config(options, 1, 1).group_max_size > CROWDED_SIZE_MAX
    assert make_config(options, 1, 2).group_max_size == make_config(options, 2, 1).group_max_size == CROWDED_SIZE_MAX
