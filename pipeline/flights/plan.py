"""What a run does, drawn from its seed: which hours are aborted first, and when and how the producer is killed. Pure.

An *hour* is one transaction: all flights that were to depart in one hour of the year, in order. An *attempt* is one try to
write an hour; its name travels in a header of every record, so that a reader can tell whose rows it sees.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE_ROWS = 336_776
ABORT_ONE_IN = 10
KILLS = 5
WINDOW_KILLS = 2
BROKER_KILLS = 2
HOURS_LEFT_MIN = 40  # that follow the last kill, so that the producer cannot finish before it falls
HOURS_MIN = 60  # fewer leave no room for kills before the last of them
LEADER_KILL_PART = (0.25, 0.45)
"""Of all hours: where in the load the leader of a data partition is killed."""
COORDINATOR_KILL_PART = (0.55, 0.75)
HOURS_AFTER_BROKERS = 10  # that are written only when the last broker has been killed
TIMED_KILL_DELAY_MAX_SECONDS = 0.030
WINDOW_KILL_DELAY_SECONDS = (0.000_1, 0.010)  # drawn evenly in the logarithm: before as well as after the answer


class Fate(StrEnum):
    """What the producer means to do with an attempt when it writes it."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Hour:
    """One transaction of the feed: its rows lie from byte ``start`` on, one a line."""

    index: int
    departs: str
    rows: int
    start: int


class KillKind(StrEnum):
    """TIMED falls wherever the producer happens to be; WINDOW between an EndTxn request and its answer."""

    TIMED = "timed"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the producer ``delay_seconds`` after a moment.

    The moment is the commit of hour ``after_hour`` (TIMED), or the first EndTxn sent once that hour is committed (WINDOW).
    """

    number: int
    kind: KillKind
    after_hour: int
    delay_seconds: float


class Target(StrEnum):
    """Which broker is killed."""

    LEADER = "leader"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class BrokerKill:
    """Kill a broker ``delay_seconds`` after the commit of hour ``after_hour``: the leader of ``partition``, or the coordinator."""

    target: Target
    after_hour: int
    delay_seconds: float
    partition: int


def attempt_name(hour: int, life: int, number: int, fate: Fate) -> str:
    """Unique over a run: ``number`` counts the attempts of one life of the producer."""
    return f"{hour}.{life}.{number}.{fate}"


def aborted_hours(seed: int, hours: int) -> frozenset[int]:
    """The hours that are aborted before they are committed: one drawn from every ten."""
    rng = random.Random(f"abort {seed}")
    drawn = (start + rng.randrange(ABORT_ONE_IN) for start in range(0, hours, ABORT_ONE_IN))
    return frozenset(hour for hour in drawn if hour < hours)


def fates(hour: int, aborted: frozenset[int]) -> tuple[Fate, ...]:
    """The attempts at one hour, in order."""
    return (Fate.ABORT, Fate.COMMIT) if hour in aborted else (Fate.COMMIT,)


def draw_kills(seed: int, hours: int) -> tuple[Kill, ...]:
    """Five kills spread over the whole run, two of them in the window; nothing steers them to safe moments."""
    assert hours >= HOURS_MIN, "too few hours to kill in"
    rng = random.Random(f"kill {seed}")
    after = sorted(rng.sample(range(1, hours - max(hours // 10, HOURS_LEFT_MIN)), KILLS))
    window = rng.sample(range(KILLS), WINDOW_KILLS)
    return tuple(
        Kill(number + 1, KillKind.WINDOW, hour, math.exp(rng.uniform(*map(math.log, WINDOW_KILL_DELAY_SECONDS))))
        if number in window
        else Kill(number + 1, KillKind.TIMED, hour, rng.uniform(0, TIMED_KILL_DELAY_MAX_SECONDS))
        for number, hour in enumerate(after)
    )


def draw_broker_kills(seed: int, hours: int, partitions: int) -> tuple[BrokerKill, BrokerKill]:
    """First a leader, then the coordinator, both in the middle of the load."""
    assert hours >= HOURS_MIN, "too few hours to kill in"
    rng = random.Random(f"broker {seed}")

    def drawn(target: Target, part: tuple[float, float]) -> BrokerKill:
        hour = int(hours * rng.uniform(*part))
        return BrokerKill(target, hour, rng.uniform(0, TIMED_KILL_DELAY_MAX_SECONDS), rng.randrange(partitions))

    return drawn(Target.LEADER, LEADER_KILL_PART), drawn(Target.COORDINATOR, COORDINATOR_KILL_PART)


def broker_gates(kills: Sequence[BrokerKill], hours: int) -> tuple[int, ...]:
    """Hours at which the producer waits: for the first broker to be back, and for the last one to be killed."""
    return (kills[-1].after_hour, hours - HOURS_AFTER_BROKERS) if kills else ()
