from __future__ import annotations

import pytest

from odradek.testing.rules import Entry, Request, RuleTable, Schedule, Selector

REQUEST = Request(
    2,
    "EndTxn",
    5,
    "shop-1",
    topics=("orders",),
    partitions=(("orders", 1), ("payments", 2)),
    groups=("billing",),
    transactional_ids=("shop-a", "shop-b"),
)


def decide(table: RuleTable) -> Entry | None:
    """Return the first rule whose turn it is, after it has selected the request."""
    return next((entry for entry in table.taking(REQUEST) if entry.select()), None)


def selected(schedule: Schedule, count: int) -> list[int]:
    """Return the numbers, from 1 on, of the requests that a rule selects among `count` equal ones."""
    table = RuleTable()
    table.add(Entry(Selector("EndTxn"), schedule))
    return [number for number in range(1, count + 1) if decide(table) is not None]


@pytest.mark.parametrize(
    "selector",
    [
        Selector(),
        Selector("EndTxn"),
        Selector(client_id="shop-*"),
        Selector(transactional_id="shop-b"),
        Selector(group="bill?ng"),
        Selector(topic="orders"),
        Selector(broker=2),
        Selector(partition=2),
        Selector(topic="orders", partition=1),
        Selector(when=lambda request: request.version == 5),
        Selector("EndTxn", "shop-1", "shop-a", "billing", "orders", 2),
    ],
)
def test_selector_matches(selector: Selector) -> None:
    assert selector.matches(REQUEST)


@pytest.mark.parametrize(
    "selector",
    [
        Selector("Produce"),
        Selector(client_id="shop"),
        Selector(transactional_id="shop-c"),
        Selector(group="Billing"),
        Selector(topic="order"),
        Selector(broker=1),
        Selector(partition=0),
        Selector(topic="orders", partition=2),
        Selector(when=lambda request: request.version > 5),
        Selector(sender="broker"),
        Selector("EndTxn", "shop-1", "shop-a", "billing", "payments", 2),
    ],
)
def test_selector_with_one_other_condition_does_not_match(selector: Selector) -> None:
    assert not selector.matches(REQUEST)


def test_schedule_selects_by_number() -> None:
    assert selected(Schedule(), 3) == [1, 2, 3]
    assert selected(Schedule(nth=3, times=1), 5) == [3]
    assert selected(Schedule(times=2), 5) == [1, 2]
    assert selected(Schedule(nth=2, times=2), 5) == [2, 3]


def test_schedule_with_a_probability_repeats_with_its_seed() -> None:
    first = selected(Schedule(probability=0.5, seed=7), 100)
    assert first == selected(Schedule(probability=0.5, seed=7), 100)
    assert first != selected(Schedule(probability=0.5, seed=8), 100)
    assert 30 < len(first) < 70
    assert len(selected(Schedule(times=3, probability=0.5, seed=7), 100)) == 3


def test_first_rule_decides_and_later_rules_count_the_request() -> None:
    table = RuleTable()
    first, second = Entry(Selector("EndTxn"), Schedule(times=1)), Entry(Selector(), Schedule(nth=2, times=1))
    table.add(first)
    table.add(second)
    assert [decide(table) for _ in range(3)] == [first, second, None]


def test_watched_apis_are_those_of_rules_that_can_still_select() -> None:
    table = RuleTable()
    once = Entry(Selector("EndTxn"), Schedule(times=1))
    table.add(once)
    table.add(Entry(Selector("Fetch", sender="broker"), Schedule()))
    assert table.watched() == [("EndTxn", "client"), ("Fetch", "broker")]
    assert decide(table) is once
    assert table.watched() == [("Fetch", "broker")]
    table.clear()
    assert table.watched() == []


def test_removed_rule_does_not_decide() -> None:
    table = RuleTable()
    entry = Entry(Selector(), Schedule())
    table.add(entry)
    table.remove(entry)
    table.remove(entry)
    assert decide(table) is None
