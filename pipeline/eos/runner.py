"""Carry out the runs of the driver: start, fault, end. One run follows the other, on one checkpoint."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from odradek.pipeline.eos.checkpoint import delete_last_commit
from odradek.pipeline.eos.driver import Task
from odradek.pipeline.eos.driver_process import DriverFailed, DriverProcess
from odradek.pipeline.eos.plan import FIRST_STEP, End, Fault
from odradek.pipeline.faults.relay import Relay
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.eos.plan import Run
    from odradek.pipeline.eos.record import Record

SPARK_LOG: Final = "spark.log"
CHECKPOINT: Final = "checkpoint"
OTHER_CHECKPOINT: Final = "other-checkpoint"
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Errors of a late EndTxn request that show that the driver is fenced."""

LATE_REPETITIONS_MAX: Final = 3
"""Maximum runs per campaign that repeat one whose late EndTxn request had no response. Few coordinators move."""


@dataclass(frozen=True, slots=True)
class Job:
    """Job of all drivers.

    Attributes:
        access: Brokers.
        source: Topic that the drivers read.
        offsets_per_batch: Maximum offsets per micro-batch.
        trigger: Minimum interval of the micro-batches.
        sink: Options of the sink without those of its connections.
        stock: Use Spark's own sink.
        out: Directory of checkpoint and logs.
        settings: Spark properties of all drivers.
    """

    access: Access
    source: str
    offsets_per_batch: int
    trigger: str
    sink: Mapping[str, str]
    stock: bool
    out: Path
    settings: Mapping[str, str] = field(default_factory=dict)


class Runner:
    """Drivers of one job. While one runs, the next one starts Spark and waits for its task.

    Args:
        job: Job of the drivers.
        inject: Injects the fault of a run into a paused driver, lets it continue, and returns a description.
        record: Record of all events.
        show: Called with each progress line.
        stopped: When it is set, waits before kills end, and no driver starts.
    """

    def __init__(
        self,
        job: Job,
        inject: Callable[[Run, DriverProcess], str],
        record: Record,
        show: Callable[[str], None],
        stopped: threading.Event,
    ) -> None:
        self._job = job
        self._inject = inject
        self._record = record
        self._show = show
        self._stopped = stopped
        self._relay = Relay(job.access)
        self._relayed = self._relay.start()
        self._drivers: list[DriverProcess] = []
        self._lock = threading.Lock()
        self._closed = False
        self._standby = self._launched()
        self._planned: deque[Run] = deque()
        self._late: Run | None = None
        self._late_repetitions = 0
        self._deleted_batch: int | None = None
        self.runs = 0

    def close(self) -> None:
        """End all drivers and the relay. May be called from any thread, and again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for driver in self._drivers:
            driver.close()
        self._relay.stop()

    def _launched(self) -> DriverProcess:
        with self._lock:
            if self._closed or self._stopped.is_set():
                raise DriverFailed("the runs were stopped")
            driver = DriverProcess(self._job.out / SPARK_LOG, self._job.settings, self._record.event)
            self._drivers.append(driver)
        return driver

    def begin(
        self,
        run: Run | None = None,
        *,
        checkpoint: str = CHECKPOINT,
        available_now: bool = False,
        launch: bool = True,
        offsets_per_batch: int | None = None,
    ) -> DriverProcess:
        """Give the waiting driver a task, and launch the next one. Without a `run`, the task has no pauses.

        `offsets_per_batch` replaces that of the job.
        """
        job = self._job
        self.runs += 1
        late = run is not None and run.end in {End.WITHHELD, End.LATE}
        task = Task(
            run=self.runs if run is None else run.number,
            access=job.access,
            source=job.source,
            checkpoint=str(job.out / checkpoint),
            offsets_per_batch=offsets_per_batch or job.offsets_per_batch,
            trigger=job.trigger,
            sink={**job.sink, **(self._relayed if late else job.access).spark()},
            stock=job.stock,
            available_now=available_now,
            pauses=() if run is None else tuple(run.pauses),
        )
        driver = self._standby
        driver.start(task)
        if launch:
            self._standby = self._launched()
        return driver

    def carry_out(self, plan: Iterable[Run], more: Iterator[Run], has_time: Callable[[], bool]) -> None:
        """Carry out the runs of the plan, and further ones while `has_time` returns True."""
        self._planned.extend(plan)
        successor: tuple[Run, DriverProcess] | None = None
        while successor is not None or self._planned or self._is_unsettled() or has_time():
            run, driver = successor or self._next(more)
            successor = self._carried_out(run, driver, more)

    def _is_unsettled(self) -> bool:
        """Return True if the next run must settle a late commit, or must repeat a batch."""
        return self._late is not None or self._deleted_batch is not None

    def _next(self, more: Iterator[Run]) -> tuple[Run, DriverProcess]:
        """Begin the next run."""
        run = replace(self._planned.popleft() if self._planned else next(more), number=self.runs + 1)
        return run, self.begin(run, available_now=run.end is End.COMMIT_LOG)

    def _carried_out(self, run: Run, driver: DriverProcess, more: Iterator[Run]) -> tuple[Run, DriverProcess] | None:
        """Carry out a run. Return the next one with its driver if it has begun."""
        began = time.monotonic()
        if run.fault is not None:
            self._await_pause(driver)
            self._show(f"run {run.number}: {self._injected(run, driver)}")
            self._record.faults[run.fault] += 1
        successor, details = None, ""
        match run.end:
            case End.COMMIT_LOG:
                driver.wait_for("ended")
                driver.close()
                self._settle_late_commit()
            case End.REPLACED:
                self._await_pause(driver)
                successor = self._replaced(driver, more)
            case _:
                self._await_pause(driver)
                details = self._killed(run, driver)
        self._check_repeated_batch(run)
        if run.end is End.COMMIT_LOG:
            self._deleted_batch = delete_last_commit(self._job.out / CHECKPOINT)
            details = f", batch {self._deleted_batch}"
        if run.end is not End.LATE:
            self._record.ended(run, time.monotonic())
        batches = len(self._record.batches_of(run.number))
        self._show(f"run {run.number}: {run.end}{details}; {batches} batches, {time.monotonic() - began:.0f} s")
        return successor

    def _await_pause(self, driver: DriverProcess) -> None:
        """Wait for the next pause of a driver. It has completed a batch, so a late commit can be released."""
        driver.wait_for("paused")
        self._settle_late_commit()

    def _injected(self, run: Run, driver: DriverProcess) -> str:
        """Inject the fault of a run into a paused driver, and let it continue. Return a description."""
        if run.fault is not Fault.OTHER_CHECKPOINT:
            return self._inject(run, driver)
        other = self.begin(checkpoint=f"{OTHER_CHECKPOINT}-{run.number}")
        refused = other.wait_for("refused")
        other.close()
        self._expect_error("another checkpoint", refused.details["error"], "CheckpointMismatch")
        driver.proceed()
        return f"{run.fault}: {refused.details['error']}"

    def _replaced(self, driver: DriverProcess, more: Iterator[Run]) -> tuple[Run, DriverProcess]:
        """Begin the next run while a driver is paused, and let that one continue: it must end with SinkInUse.

        1. The paused driver has decided a batch in mode 2pc, and its transactions are open.
        2. The successor fences the transactional id of the sink, but not yet those of the tasks.
        3. The paused driver ends its transactions and completes the batch. Both drivers write its entry in the
           checkpoint, and Spark stops the second one.
        So the paused driver continues when the successor has ended the batch, and begins the next one.
        """
        run, successor = self._next(more)
        successor.await_step(FIRST_STEP)
        driver.proceed()
        refused = driver.wait_for("refused")
        driver.close()
        self._expect_error("a fenced driver", refused.details["error"], "SinkInUse")
        return run, successor

    def _killed(self, run: Run, driver: DriverProcess) -> str:
        """Kill a paused driver as the run plans it. Return a description."""
        assert run.end_at is not None, "the driver is paused"
        match run.end:
            case End.STEP:
                driver.kill()
            case End.RANDOM:
                driver.proceed()
                self._stopped.wait(run.delay_seconds)
                driver.kill()
            case _:
                self._relay.arm(run.delay_seconds, driver.kill, late=run.end is End.LATE)
                driver.proceed()
        driver.wait_for("exit")
        driver.close()
        if run.end is End.STEP:
            return f" {run.end_at.step}"
        if run.end is End.LATE:
            self._late = run
        if run.end is not End.WITHHELD:
            return f", after {run.delay_seconds * 1e3:.0f} ms"
        held = self._relay.take_held_commit()
        if held is None or held.killed_at is None:
            raise DriverFailed(f"run {run.number}: the driver ended, and the relay withheld no response to EndTxn")
        error = "none" if held.error is None else ErrorCode(held.error).name
        return f", after {run.delay_seconds * 1e3:.0f} ms, response {error}"

    def _settle_late_commit(self) -> None:
        """Forward the late commit of an earlier run. The cluster must refuse it.

        The run is repeated if the coordinator has moved, so that the request did not reach it, at most
        `LATE_REPETITIONS_MAX` times per campaign.
        """
        run, self._late = self._late, None
        if run is None:
            return
        self._relay.release()
        held = self._relay.take_held_commit()
        error = None if held is None or held.error is None else ErrorCode(held.error)
        self._show(f"late EndTxn request of run {run.number}: {'no response' if error is None else error.name}")
        if error is ErrorCode.NONE:
            self._record.problems.append("a late EndTxn request of a fenced driver was accepted")
        elif error in FENCED:
            self._record.ended(run, time.monotonic())
        elif self._late_repetitions < LATE_REPETITIONS_MAX:
            self._late_repetitions += 1
            self._planned.append(run)

    def _check_repeated_batch(self, run: Run) -> None:
        """Check that the first batch of a run repeats the one whose entry in the commit log was deleted."""
        expected, self._deleted_batch = self._deleted_batch, None
        if expected is None:
            return
        batches = self._record.batches_of(run.number)
        if not batches:
            self._record.problems.append(f"batch {expected} was not repeated: run {run.number} has no batch")
        elif batches[0].batch != expected:
            self._record.problems.append(f"batch {expected} was not repeated, but batch {batches[0].batch}")
        elif batches[0].written != self._job.stock:
            self._record.problems.append(f"the repeated batch {expected} was written: {batches[0].written}")

    def _expect_error(self, subject: str, actual: str, expected: str) -> None:
        if actual != expected:
            self._record.problems.append(f"{subject} failed with {actual} instead of {expected}")
