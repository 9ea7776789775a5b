"""Copy the flights to another topic exactly once, with a Spark driver of its own that is killed."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.pipeline.eos.injector import kill_workers
from odradek.pipeline.eos.plan import FIRST_STEP, WORKERS_BATCHES_MAX, End, Fault, Pause, Run
from odradek.pipeline.eos.record import Record
from odradek.pipeline.eos.runner import Job, Runner
from odradek.spark.exactly_once import STEPS as SINK_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.eos.driver_process import DriverProcess

BATCHES: Final = 24
"""Minimum micro-batches if the runs before the last one copied all flights: enough for all kills of the driver."""
REST_BATCHES: Final = 4
"""Batches of the last run, if it had to copy all flights. No fault is left, so the batches are large."""
TRIGGER: Final = "10 seconds"
"""Minimum interval of the micro-batches. Each one costs seconds of CPU time, and the producer needs the same cores."""
STEPS: Final = tuple(step.name for step in SINK_STEPS["txn"])
"""Names of the steps of a batch."""
DELAY_SECONDS_MAX: Final = 1.0
"""Maximum seconds between the begin of a batch and the kill of its Python workers: about the duration of a batch."""
DRIVER_KILLS: Final = 3
"""Driver kills per run. The last one is when the producer has finished, and so at a random time of a batch."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Brokers, topics, number of flights, seed, and the directory of checkpoint and logs."""

    access: Access
    flights_topic: str
    copies_topic: str
    rows: int
    seed: int
    out: Path


def copy_runs(seed: int) -> list[Run]:
    """Return the runs of the driver that end before the producer has finished.

    The first kill is between the begin and the commit of a batch. The second one is between the commit and Spark's own
    record of it.
    """
    rng = random.Random(f"copies {seed}")
    open_step = rng.choice(STEPS[STEPS.index(FIRST_STEP) : -1])
    delay = rng.uniform(0, DELAY_SECONDS_MAX)
    return [
        Run(1, Fault.WORKERS, Pause(1, FIRST_STEP), End.STEP, Pause(1 + WORKERS_BATCHES_MAX, open_step), delay),
        Run(2, None, None, End.STEP, Pause(1, STEPS[-1]), 0.0),
    ]


class Copier:
    """Runs of the driver. `run` blocks its thread; `stop` may be called from any thread.

    `on_event` is called with a progress line and the number of driver kills.
    """

    def __init__(self, options: CopyOptions, on_event: Callable[[str, int], None]) -> None:
        self._options = options
        self._on_event = on_event
        self._stopped = threading.Event()
        self._runner: Runner | None = None
        self.record = Record()

    @property
    def topic(self) -> str:
        """Topic of the copies."""
        return self._options.copies_topic

    def run(self, produced: threading.Event) -> None:
        """Copy all flights. `produced` is set when the producer has finished.

        Raise DriverFailed if the driver fails without a planned kill.
        """
        options = self._options
        options.out.mkdir(exist_ok=True)
        sink = dict.fromkeys(("topic", "sink", "ledgerTopic"), options.copies_topic)
        offsets = max(1, options.rows // BATCHES)
        job = Job(options.access, options.flights_topic, offsets, TRIGGER, sink, stock=False, out=options.out)
        runner = self._runner = Runner(job, self._inject, self.record, self._shown, self._stopped)
        try:
            runner.carry_out(copy_runs(options.seed), iter(()), lambda: False)
            driver = runner.begin()
            produced.wait()
            driver.close()
            self.record.ended(Run(runner.runs, None, None, End.RANDOM, None, 0.0), time.monotonic())
            self._shown(f"run {runner.runs}: {End.RANDOM}, when the producer has finished")
            rest = max(1, options.rows // REST_BATCHES)
            runner.begin(available_now=True, launch=False, offsets_per_batch=rest).wait_for("ended")
        finally:
            runner.close()

    def stop(self) -> None:
        """End the driver."""
        self._stopped.set()
        if self._runner is not None:
            self._runner.close()

    def _inject(self, run: Run, driver: DriverProcess) -> str:
        return kill_workers(run, driver, self._stopped)

    def _shown(self, line: str) -> None:
        self._on_event(line, len(self.record.times))
