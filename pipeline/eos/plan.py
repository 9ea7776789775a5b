"""Generate the plan of a campaign from its seed: the runs of the driver, and the faults of each run.

A *run* is one process of the driver. It has at most one fault that it survives, and one end. All functions are pure.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEP_KILLS_MIN: Final = 2
"""Minimum driver kills after each step."""
DRIVER_KILLS_MIN: Final = 12
"""Minimum driver kills after steps, in all."""
BATCHES_MAX: Final = 3
"""Maximum batches that a run completes before its first fault."""
BATCHES_BETWEEN_FAULTS: Final = 2
"""Batches that a run completes between the fault that it survives and its end."""
WORKERS_BATCHES_MAX: Final = 3
"""Maximum batches of a run in which Python workers are killed. A kill has no effect if no task uses the worker."""
DELAY_SECONDS_MAX: Final = 0.6
"""Maximum seconds between the first step of a batch and a kill at a random time: about the duration of a batch."""
END_TXN_DELAY_SECONDS_MAX: Final = 0.02
"""Maximum seconds between an EndTxn request and a kill."""
FIRST_STEP: Final = "BEGUN"
"""Step before the job. Kills at random times follow it."""
LAST_STEPS: Final = frozenset({"ONE_COMPLETED", "COMMITTED"})
"""Steps after which a batch may need no further request."""


class Mode(StrEnum):
    """Sink and brokers of a campaign."""

    TXN = "txn"
    TWO_PHASE = "2pc"
    KAFKA = "kafka"
    STOCK = "stock"


class Fault(StrEnum):
    """Kinds of faults that a run of the driver survives."""

    WORKERS = "Python workers killed"
    LEADER = "leader of an output partition killed"
    COORDINATOR = "transaction coordinator killed"
    PARTITIONS = "partitions added to both topics"
    OTHER_CHECKPOINT = "second driver with another checkpoint refused"


class End(StrEnum):
    """Kinds of ends of a run of the driver."""

    STEP = "driver killed after a step"
    RANDOM = "driver killed at a random time"
    WITHHELD = "driver killed, response to EndTxn withheld"
    LATE = "driver killed, EndTxn delayed past the next run"
    COMMIT_LOG = "last entry of the checkpoint's commits deleted"
    REPLACED = "driver fenced by a second one (SinkInUse)"


KILLS: Final = frozenset({End.STEP, End.RANDOM, End.WITHHELD, End.LATE})
"""Ends with a SIGKILL of the driver."""
TRANSACTIONAL_ENDS: Final = (End.WITHHELD, End.LATE, End.REPLACED)
"""Ends that only a sink with transactions has."""
OTHER_ENDS: Final = (End.RANDOM, End.COMMIT_LOG)
OTHER_ENDS_EACH: Final = 2
"""Runs with each end other than STEP."""
FAULTS: Final = (
    Fault.WORKERS, Fault.WORKERS, Fault.LEADER, Fault.LEADER, Fault.COORDINATOR, Fault.COORDINATOR, Fault.PARTITIONS,
    Fault.OTHER_CHECKPOINT,
)  # fmt: skip
"""Faults of each campaign. Each is in a run of its own."""
TRANSACTIONAL_FAULTS: Final = frozenset({Fault.WORKERS, Fault.COORDINATOR, Fault.OTHER_CHECKPOINT})
"""Faults that concern only a sink with transactions. Spark's own sink uses no Python workers."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The driver stops after `step` of the batch that follows `batches` complete ones, until it may continue."""

    batches: int
    step: str


@dataclass(frozen=True, slots=True)
class Run:
    """Plan of one run of the driver.

    Attributes:
        number: Number of the run. The campaign numbers all runs that it carries out, from 1.
        fault: The fault that the run survives, or None.
        fault_at: Pause at which the fault is injected. None without a fault.
        end: End of the run.
        end_at: Pause at which the end begins. None if the run ends with the available data.
        delay_seconds: Time between the pause and a kill, or between an EndTxn request and a kill.
        partition: Index of the output partition whose leader is killed.
    """

    number: int
    fault: Fault | None
    fault_at: Pause | None
    end: End
    end_at: Pause | None
    delay_seconds: float
    partition: int = 0

    @property
    def pauses(self) -> list[Pause]:
        """All pauses in order."""
        return [pause for pause in (self.fault_at, self.end_at) if pause is not None]


def generate(seed: int, mode: Mode, steps: Sequence[str], partitions: int) -> list[Run]:
    """Return the runs that each campaign of a mode must have, in an order that depends on the seed.

    Args:
        seed: Seed of the campaign.
        mode: Mode of the campaign.
        steps: Names of the steps of a batch, in order. The last one follows the commit.
        partitions: Partitions of the output topic at the start.
    """
    rng = random.Random(f"eos {mode} {seed}")
    each = max(STEP_KILLS_MIN, -(-DRIVER_KILLS_MIN // len(steps)))
    kinds = [(End.STEP, step) for step in steps for _ in range(each)]
    others = OTHER_ENDS if mode is Mode.STOCK else (*OTHER_ENDS, *TRANSACTIONAL_ENDS)
    kinds += [(end, _step_before(rng, end, steps)) for end in others for _ in range(OTHER_ENDS_EACH)]
    rng.shuffle(kinds)
    runs = [_run(rng, number, end, step, partitions) for number, (end, step) in enumerate(kinds, 1)]
    faults = [fault for fault in FAULTS if mode is not Mode.STOCK or fault not in TRANSACTIONAL_FAULTS]
    able = [run.number for run in runs if run.end_at is not None]
    for number, fault in zip(rng.sample(able, len(faults)), faults, strict=True):
        runs[number - 1] = _with_fault(rng, runs[number - 1], fault, steps)
    return runs


def more_runs(seed: int, mode: Mode, steps: Sequence[str], partitions: int) -> Iterator[Run]:
    """Yield further runs without end, for the rest of the time. They end by kills, and have faults at random."""
    rng = random.Random(f"eos more {mode} {seed}")
    faults = [*([] if mode is Mode.STOCK else [Fault.WORKERS, Fault.COORDINATOR]), Fault.LEADER, None, None]
    for number in itertools.count(1):
        end = rng.choice([End.STEP, End.RANDOM])
        step = rng.choice(steps) if end is End.STEP else FIRST_STEP
        run = _run(rng, number, end, step, partitions)
        fault = rng.choice(faults)
        yield run if fault is None else _with_fault(rng, run, fault, steps)


def _step_before(rng: random.Random, end: End, steps: Sequence[str]) -> str:
    """Return the step after which an end begins. EndTxn and a later request of a fenced driver must follow it."""
    if end is not End.REPLACED:
        return FIRST_STEP
    return rng.choice([step for step in steps[steps.index(FIRST_STEP) :] if step not in LAST_STEPS])


def _run(rng: random.Random, number: int, end: End, step: str, partitions: int) -> Run:
    at = None if end is End.COMMIT_LOG else Pause(rng.randint(1, BATCHES_MAX), step)
    maximum = END_TXN_DELAY_SECONDS_MAX if end in TRANSACTIONAL_ENDS else DELAY_SECONDS_MAX
    return Run(number, None, None, end, at, rng.uniform(0, maximum), rng.randrange(partitions))


def _with_fault(rng: random.Random, run: Run, fault: Fault, steps: Sequence[str]) -> Run:
    """Return the run with a fault before its end."""
    assert run.end_at is not None, "a run that ends with the available data has no fault"
    open_steps = steps[steps.index(FIRST_STEP) : -1] or (FIRST_STEP,)
    step = FIRST_STEP if fault in {Fault.WORKERS, Fault.PARTITIONS} else rng.choice(open_steps)
    batches = run.end_at.batches
    between = WORKERS_BATCHES_MAX if fault is Fault.WORKERS else BATCHES_BETWEEN_FAULTS
    end_at = Pause(batches + between, run.end_at.step)
    return replace(run, fault=fault, fault_at=Pause(batches, step), end_at=end_at)
