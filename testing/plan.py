"""Plans of faults: generated from a seed, printed as text, read back, and carried out. All but `carry_out` is pure."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.testing.numbers import is_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

FAULT_MS_MIN, FAULT_MS_MAX = 100, 1_500
"""Duration of one fault in milliseconds."""
GAP_MS_MIN, GAP_MS_MAX = 100, 800
"""Time without a fault between two faults, in milliseconds. The cluster recovers meanwhile."""
DURATION_S = 10.0
"""Default duration of a plan in seconds."""
MS = 1_000
REQUEST_FAULTS = (
    ("EndTxn", "drop_response"),
    ("Produce", "drop_response"),
    ("Produce", "disconnect"),
    ("Fetch", "disconnect"),
    ("OffsetCommit", "drop_response"),
    ("FindCoordinator", "delay"),
)
"""API and effect of faults in requests."""
METHODS = (
    "pause", "resume", "kill", "start", "restart", "cut", "slow", "heal", "full_disk", "free_disk", "inject",
    "remove_injected", "end_faults",
)  # fmt: skip
"""Methods of `KafkaCluster` that a step can call."""
LINE = re.compile(r"\s*(?P<at>\d+) ms\s+(?P<method>\w+)\s+(?P<arguments>\[.*\])\s*")
"""A printed step."""


@dataclass(frozen=True)
class Step:
    """One step: at a time in milliseconds after the begin, call a method of the cluster with arguments."""

    at_ms: int
    method: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at_ms:>6} ms  {self.method} {json.dumps(list(self.arguments))}"

    @classmethod
    def parse(cls, line: str) -> Step:
        """Return the step of a printed line. Raise ValueError if it is none."""
        found = LINE.fullmatch(line)
        try:
            arguments = json.loads(found["arguments"]) if found else None
        except json.JSONDecodeError:
            arguments = None
        if found is None or not isinstance(arguments, list):
            raise ValueError(f"step {line.strip()!r}: expected a line such as '250 ms  kill [1]'")
        if found["method"] not in METHODS:
            raise ValueError(f"step {line.strip()!r}: {found['method']} is unknown; use one of {', '.join(METHODS)}")
        return cls(int(found["at"]), found["method"], tuple(arguments))


@dataclass(frozen=True)
class FaultPlan:
    """Faults with their times. Equal seeds and parameters give equal plans."""

    steps: tuple[Step, ...] = field(default=())

    @classmethod
    def generate(cls, seed: int, brokers: int, duration_s: float = DURATION_S) -> FaultPlan:
        """Generate a plan for a cluster with `brokers` brokers. At most one broker fails at a time.

        Raise ValueError if the duration is not above 0.
        """
        if not is_finite(duration_s) or duration_s == 0:
            raise ValueError(f"duration_s={duration_s!r}: use a number of seconds above 0")
        return cls(tuple(_steps(random.Random(seed), brokers, round(duration_s * MS))))

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Return the plan of a printed text."""
        return cls(tuple(Step.parse(line) for line in text.splitlines() if line.strip()))


def _steps(rng: random.Random, brokers: int, duration_ms: int) -> Iterator[Step]:
    kinds: list[Callable[[int, int], tuple[Step, Step]]] = [_pause, _request_fault(rng)]
    if brokers > 1:
        kinds += [_kill, _partition(rng, brokers), _slow(rng, brokers)]
    at = rng.randint(GAP_MS_MIN, GAP_MS_MAX)
    while True:
        end = at + rng.randint(FAULT_MS_MIN, FAULT_MS_MAX)
        if end > duration_ms:
            return
        first, last = rng.choice(kinds)(at, rng.randint(1, brokers))
        yield first
        yield Step(end, last.method, last.arguments)
        at = end + rng.randint(GAP_MS_MIN, GAP_MS_MAX)


def _pause(at: int, broker: int) -> tuple[Step, Step]:
    return Step(at, "pause", (broker,)), Step(at, "resume", (broker,))


def _kill(at: int, broker: int) -> tuple[Step, Step]:
    return Step(at, "kill", (broker,)), Step(at, "start", (broker,))


def _partition(rng: random.Random, brokers: int) -> Callable[[int, int], tuple[Step, Step]]:
    def steps(at: int, broker: int) -> tuple[Step, Step]:
        return Step(at, "cut", (broker, _other(rng, broker, brokers))), Step(at, "heal")

    return steps


def _slow(rng: random.Random, brokers: int) -> Callable[[int, int], tuple[Step, Step]]:
    def steps(at: int, broker: int) -> tuple[Step, Step]:
        return Step(at, "slow", (broker, _other(rng, broker, brokers), rng.randint(20, 300))), Step(at, "heal")

    return steps


def _other(rng: random.Random, broker: int, brokers: int) -> int:
    return rng.choice([each for each in range(1, brokers + 1) if each != broker])


def _request_fault(rng: random.Random) -> Callable[[int, int], tuple[Step, Step]]:
    def steps(at: int, _broker: int) -> tuple[Step, Step]:
        api, effect = rng.choice(REQUEST_FAULTS)
        return Step(at, "inject", (api, effect)), Step(at, "remove_injected")

    return steps


def carry_out(plan: FaultPlan, cluster: object, end: Event) -> None:
    """Carry out the steps as methods of a `KafkaCluster`. Return early if `end` is set.

    The time between two steps is that of the plan. A step that takes long, such as a start, delays all later ones.
    """
    passed_ms = 0
    for step in plan.steps:
        if end.wait((step.at_ms - passed_ms) / MS):
            return
        passed_ms = step.at_ms
        getattr(cluster, step.method)(*step.arguments)
