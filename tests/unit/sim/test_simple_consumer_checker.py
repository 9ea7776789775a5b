"""The checker of simple consumers against hand-written histories, and the options of simple consumers."""

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
Write = tuple[str, dict[Any, int]]
"""Outcome and offset of each partition; -1 for a deleted offset."""


def findings(*steps: Write | dict[Any, int], coordinated: bool = True) -> list[str]:
    """Return the findings about a sequence of writes (pairs) and OffsetFetch responses (mappings)."""
    history = History()
    for step in steps:
        if isinstance(step, dict):
            fetched = history.invoke(OFFSETS, "x", 0.0, group=GROUP, partitions=(P0, P1), offsets=tuple(step.items()))
            history.complete(fetched, OK, 0.0, coordinated=coordinated)
            continue
        outcome, offsets = step
        history.complete(history.invoke(SIMPLE, "x", 0.0, group=GROUP, offsets=tuple(offsets.items())), outcome, 0.0)
    evidence = Evidence(history, {}, groups=GroupEvidence((), (P0, P1), alone=GROUP))
    return list(check_simple_consumer(evidence))


def test_offset_written_last_is_accepted() -> None:
    assert findings({}, (OK, {P0: 1}), {P0: 1}, (OK, {P1: 2}), (OK, {P0: -1}), {P1: 2}) == []
    assert findings((OK, {P0: 1}), (FAIL, {P0: 2}), {P0: 1}) == []


def test_write_with_unknown_outcome_may_or_may_not_take_effect() -> None:
    for fetched in ({P0: 1}, {P0: 2}):
        assert findings((OK, {P0: 1}), (INFO, {P0: 2}), fetched) == []
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
def test_other_offsets_are_reported(steps: tuple[Any, ...]) -> None:
    (finding,) = findings(*steps)
    assert finding.startswith("I7 alone-1")
    assert findings(*steps, coordinated=False) == []


def test_rarities_are_generated_separately() -> None:
    """A seed keeps its other groups; part of the runs get additional ones."""
    options_with_groups = [groups for seed in range(60) if (groups := generate_options(seed).groups) is not None]
    assert 0 < sum(1 for groups in options_with_groups if groups.plans[-1].restless) < len(options_with_groups)
    assert 0 < sum(1 for groups in options_with_groups if groups.alone) < len(options_with_groups)
    for groups in options_with_groups:
        assert not any(plan.restless for plan in groups.plans[:-1])
        assert not groups.size_max or groups.plans[-1].members > groups.size_max


def test_restarted_broker_has_a_smaller_group_max_size() -> None:
    crowded = (generate_options(seed, brokers=3) for seed in range(200))
    options = next(candidate for candidate in crowded if candidate.groups is not None and candidate.groups.size_max)
    assert make_config(options, 1, 1).group_max_size > CROWDED_SIZE_MAX
    assert make_config(options, 1, 2).group_max_size == make_config(options, 2, 1).group_max_size == CROWDED_SIZE_MAX
