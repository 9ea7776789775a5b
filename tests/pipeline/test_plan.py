"""Plan and feed: properties that hold for all seeds."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.flights.feed import Feed, write_feed
from odradek.pipeline.flights.plan import (
    ABORT_ONE_IN,
    HOURS_LEFT_MIN,
    HOURS_MIN,
    KILLS,
    SOURCE_ROWS,
    WINDOW_KILLS,
    Intent,
    KillKind,
    Target,
    aborted_hours,
    attempt_name,
    generate_broker_kills,
    generate_kills,
    intents,
    pause_hours,
)
from odradek.pipeline.flights.source import load_flights

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from odradek.pipeline.flights.plan import Hour

SEEDS = st.integers(0, 2**31 - 1)
PARTITIONS = 6


@given(SEEDS, st.integers(1, 7000))
def test_one_of_ten_hours_is_aborted_first(seed: int, hours: int) -> None:
    aborted = aborted_hours(seed, hours)
    for start in range(0, hours - ABORT_ONE_IN + 1, ABORT_ONE_IN):
        assert len(aborted & set(range(start, start + ABORT_ONE_IN))) == 1
    assert all(0 <= hour < hours for hour in aborted)
    assert aborted == aborted_hours(seed, hours)


@given(SEEDS, st.integers(HOURS_MIN, 7000))
def test_kills_are_in_order_and_two_are_in_the_window(seed: int, hours: int) -> None:
    kills = generate_kills(seed, hours)
    after = [kill.after_hour for kill in kills]
    assert [kill.number for kill in kills] == list(range(1, KILLS + 1))
    assert after == sorted(set(after))
    assert after[0] > 0
    assert hours - after[-1] > HOURS_LEFT_MIN, "the producer must still have work when it is killed"
    assert sum(kill.kind is KillKind.WINDOW for kill in kills) == WINDOW_KILLS
    assert all(kill.delay_seconds > 0 for kill in kills)
    assert kills == generate_kills(seed, hours)


@given(SEEDS, st.integers(HOURS_MIN, 7000))
def test_leader_is_killed_before_the_coordinator_and_both_under_load(seed: int, hours: int) -> None:
    leader, coordinator = kills = generate_broker_kills(seed, hours, PARTITIONS)
    assert (leader.target, coordinator.target) == (Target.LEADER, Target.COORDINATOR)
    first, second = pause_hours(kills, hours)
    assert 0 < leader.after_hour < first == coordinator.after_hour < second < hours
    assert all(0 <= kill.partition < PARTITIONS and 0 <= kill.delay_seconds < 1 for kill in kills)
    assert kills == generate_broker_kills(seed, hours, PARTITIONS)


def test_different_seeds_generate_different_plans() -> None:
    assert len({generate_kills(seed, 1000) for seed in range(50)}) == 50
    assert len({generate_broker_kills(seed, 1000, PARTITIONS) for seed in range(50)}) == 50
    assert len({aborted_hours(seed, 1000) for seed in range(50)}) == 50


def test_kills_for_too_few_hours_are_refused() -> None:
    with pytest.raises(AssertionError, match="too few"):
        generate_kills(1, HOURS_MIN - 1)


def test_aborted_hour_has_a_second_attempt_that_commits() -> None:
    assert intents(3, frozenset({3})) == (Intent.ABORT, Intent.COMMIT)
    assert intents(4, frozenset({3})) == (Intent.COMMIT,)
    assert attempt_name(3, 1, 7, Intent.ABORT) != attempt_name(3, 1, 8, Intent.COMMIT)


def test_feed_returns_the_flights_of_each_hour(tmp_path: Path) -> None:
    flights = load_flights(500)
    hours = write_feed(flights, tmp_path)
    with closing(Feed(tmp_path)) as feed:
        check_feed(feed, flights, hours)


def check_feed(feed: Feed, flights: pd.DataFrame, hours: list[Hour]) -> None:
    assert feed.hours == hours
    assert [hour.departs for hour in hours] == sorted(flights["time_hour"].unique())
    read = [json.loads(line) for hour in reversed(hours) for line in reversed(feed.lines(hour))]
    assert [flight["row"] for flight in reversed(read)] == list(range(500))
    for hour in hours:
        assert {json.loads(line)["time_hour"] for line in feed.lines(hour)} == {hour.departs}
    cancelled = flights[flights["dep_delay"].isna()].iloc[0]
    assert read[499 - cancelled["row"]]["dep_delay"] is None


def test_load_flights_reads_the_whole_source() -> None:
    flights = load_flights()
    assert len(flights) == SOURCE_ROWS
    assert flights["time_hour"].nunique() == 6936
