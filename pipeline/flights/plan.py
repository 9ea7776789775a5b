"""Generate the plan of a run from its seed: the hours that are aborted first, the producer kills, the broker kills.

An *hour* is one transaction: all flights with a scheduled departure in one hour of the year, in order. An *attempt* is
one try to write an hour. A header of each record contains the name of the attempt. A reader can therefore determine
which attempt wrote a row. All functions are pure.
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
"""Flights in the source data."""
ABORT_ONE_IN = 10
"""One of this many successive hours is aborted before it is committed."""
KILLS = 5
"""Producer kills per run."""
WINDOW_KILLS = 2
"""Producer kills between an EndTxn request and its response, per run. They are a part of `KILLS`."""
BROKER_KILLS = 2
"""Broker kills per run: one partition leader, one transaction coordinator."""
HOURS_LEFT_MIN = 40
"""Minimum hours after the last producer kill: the producer must not finish before that kill."""
HOURS_MIN = 60
"""Minimum hours per run: `HOURS_LEFT_MIN`, and enough hours before them to distribute the kills over."""
LEADER_KILL_PART = (0.25, 0.45)
"""Range of the fraction of hours after which the leader of a data partition is killed."""
COORDINATOR_KILL_PART = (0.55, 0.75)
"""Range of the fraction of hours after which the transaction coordinator is killed."""
HOURS_AFTER_BROKER_KILLS = 10
"""Hours that the producer begins only after the last broker kill, so that commits follow that kill."""
TIMED_KILL_DELAY_MAX_SECONDS = 0.030
"""Maximum seconds between a commit and a TIMED kill, or a broker kill."""
WINDOW_KILL_DELAY_SECONDS = (0.000_1, 0.010)
"""Range of the seconds between an EndTxn request and the kill. The logarithm of the delay is distributed uniformly.

Some kills therefore happen before the broker sends its response, and some after it.
"""


class Intent(StrEnum):
    """The end that the producer plans for an attempt when it begins to write it."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Hour:
    """One transaction of the feed: `rows` lines from byte `start` of the feed. `departs` is the departure hour."""

    index: int
    departs: str
    rows: int
    start: int


class KillKind(StrEnum):
    """Kinds of producer kills.

    TIMED: at a random time after a commit. WINDOW: between an EndTxn request and its response.
    """

    TIMED = "timed"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Kill:
    """Plan of one producer kill.

    A TIMED kill happens `delay_seconds` after the commit of hour `after_hour`. A WINDOW kill happens `delay_seconds`
    after the first EndTxn request that follows the commit of that hour.
    """

    number: int
    kind: KillKind
    after_hour: int
    delay_seconds: float


class Target(StrEnum):
    """Role of the broker that is killed."""

    LEADER = "leader"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class BrokerKill:
    """Plan of one broker kill, `delay_seconds` after the commit of hour `after_hour`.

    The target is the leader of `partition` of the flights topic, or the producer's transaction coordinator.
    """

    target: Target
    after_hour: int
    delay_seconds: float
    partition: int


def attempt_name(hour: int, run: int, number: int, intent: Intent) -> str:
    """Return a name that is unique in the campaign. `number` counts the attempts of one run of the producer."""
    return f"{hour}.{run}.{number}.{intent}"


def aborted_hours(seed: int, hours: int) -> frozenset[int]:
    """Return the hours that are aborted before they are committed: one of every `ABORT_ONE_IN`."""
    rng = random.Random(f"abort {seed}")
    sampled = (start + rng.randrange(ABORT_ONE_IN) for start in range(0, hours, ABORT_ONE_IN))
    return frozenset(hour for hour in sampled if hour < hours)


def intents(hour: int, aborted: frozenset[int]) -> tuple[Intent, ...]:
    """Return the planned ends of the attempts at one hour, in order."""
    return (Intent.ABORT, Intent.COMMIT) if hour in aborted else (Intent.COMMIT,)


def generate_kills(seed: int, hours: int) -> tuple[Kill, ...]:
    """Return `KILLS` producer kills at random hours in order, `WINDOW_KILLS` of them of kind WINDOW."""
    assert hours >= HOURS_MIN, "too few hours for the kills"
    rng = random.Random(f"kill {seed}")
    after = sorted(rng.sample(range(1, hours - max(hours // 10, HOURS_LEFT_MIN)), KILLS))
    window = rng.sample(range(KILLS), WINDOW_KILLS)
    return tuple(
        Kill(number + 1, KillKind.WINDOW, hour, math.exp(rng.uniform(*map(math.log, WINDOW_KILL_DELAY_SECONDS))))
        if number in window
        else Kill(number + 1, KillKind.TIMED, hour, rng.uniform(0, TIMED_KILL_DELAY_MAX_SECONDS))
        for number, hour in enumerate(after)
    )


def generate_broker_kills(seed: int, hours: int, partitions: int) -> tuple[BrokerKill, BrokerKill]:
    """Return the kill of a partition leader and the later kill of the transaction coordinator, both during the load."""
    assert hours >= HOURS_MIN, "too few hours for the kills"
    rng = random.Random(f"broker {seed}")

    def generate(target: Target, part: tuple[float, float]) -> BrokerKill:
        hour = int(hours * rng.uniform(*part))
        return BrokerKill(target, hour, rng.uniform(0, TIMED_KILL_DELAY_MAX_SECONDS), rng.randrange(partitions))

    return generate(Target.LEADER, LEADER_KILL_PART), generate(Target.COORDINATOR, COORDINATOR_KILL_PART)


def pause_hours(kills: Sequence[BrokerKill], hours: int) -> tuple[int, ...]:
    """Return the hours before which the producer pauses.

    The first pause ends when the first killed broker is in sync again, the second after the last broker kill.
    """
    return (kills[-1].after_hour, hours - HOURS_AFTER_BROKER_KILLS) if kills else ()
