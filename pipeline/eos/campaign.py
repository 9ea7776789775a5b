"""One campaign: topics, feeder, sampler and runs of the driver, and the judgment at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.pipeline.cluster.topics import create_topics
from odradek.pipeline.eos.feeder import Feeder
from odradek.pipeline.eos.injector import Injector
from odradek.pipeline.eos.judgment import Judgment, judge
from odradek.pipeline.eos.plan import Fault, Mode, more_runs
from odradek.pipeline.eos.record import Record
from odradek.pipeline.eos.runner import Job, Runner
from odradek.pipeline.eos.sampler import Sampler, row_of, visible_records
from odradek.pipeline.eos.visibility import UNJUDGED_MAX, Visibility
from odradek.pipeline.flights.progress_topic import await_stable
from odradek.spark.options import sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.eos.injector import Brokers
    from odradek.pipeline.eos.plan import Run
    from odradek.pipeline.eos.visibility import Row

SOURCE: Final = "numbers"
"""Topic that the driver reads."""
OUTPUT: Final = "copies"
"""Topic that the driver writes. It is also the name of the sink."""
SOURCE_PARTITIONS: Final = 3
OUTPUT_PARTITIONS: Final = 4
OFFSETS_PER_BATCH: Final = 60
"""Maximum offsets per micro-batch: few, so that a campaign has many batches."""
TRIGGER: Final = "100 milliseconds"
"""Minimum interval of the micro-batches. Without it, an idle query sends hundreds of requests per second."""
SPARK_SETTINGS: Final = {"spark.speculation": "true"}
"""Spark properties of all drivers.

Spark starts no speculative attempt on the host of the first one. The second attempts of tasks whose Python worker was
killed can replace them: the sink must refuse both. A kill of a worker before the shuffle has no such effect.
"""
DRAIN_SECONDS_MAX: Final = 180.0
"""Maximum seconds until all rows are visible at the end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one campaign.

    Attributes:
        mode: Mode of the campaign.
        seed: Seed of the campaign.
        steps: Names of the steps of a batch.
        plan: Runs that the campaign must have.
        seconds: Duration of the runs. Further runs follow the plan until its end.
        out: Directory of checkpoints and logs.
        show: Called with each progress line.
        is_partial: The plan is a part of the runs that a campaign of its mode must have.
    """

    mode: Mode
    seed: int
    steps: Sequence[str]
    plan: Sequence[Run]
    seconds: float
    out: Path
    show: Callable[[str], None]
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a campaign.

    Attributes:
        record: Events, faults and durations.
        judgment: Comparison of output and input.
        visibility: Samples.
        runs: Number of runs of the driver.
        aborted_rows: Rows of aborted transactions in the input.
        failed_samples: Samples that failed because a broker was down.
        missing: Planned faults that were not carried out, and other reasons why the campaign proves too little.
    """

    record: Record
    judgment: Judgment
    visibility: Visibility
    runs: int
    aborted_rows: int
    failed_samples: int
    missing: list[str]


def run_campaign(settings: Settings, brokers: Brokers) -> Result:
    """Carry out a campaign on running brokers, and judge the rows.

    Raises:
        DriverFailed: The driver failed without a planned fault. Errors of brokers and clients are raised unchanged.
    """
    began = time.monotonic()
    access, stock = brokers.access, settings.mode is Mode.STOCK
    options = {"topic": OUTPUT, "sink": OUTPUT, "mode": "2pc" if settings.mode is Mode.TWO_PHASE else "txn"}
    topics = {SOURCE: SOURCE_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
    create_topics(access, topics)
    record, visibility, stopped = Record(), Visibility(two_phase=settings.mode is Mode.TWO_PHASE), threading.Event()
    sink = sink_options({**options, **access.spark()})
    injector = Injector(brokers, topics, OUTPUT, sink.transactional_id, stopped)
    sampler = Sampler(access, OUTPUT, None if stock else sink, visibility)
    feeder = Feeder(access, SOURCE, settings.seed, sampler)
    plan, job = (
        settings.plan,
        Job(access, SOURCE, OFFSETS_PER_BATCH, TRIGGER, options, stock, settings.out, SPARK_SETTINGS),
    )
    more = more_runs(settings.seed, settings.mode, settings.steps, OUTPUT_PARTITIONS)
    with ExitStack() as cleanup:
        cleanup.callback(stopped.set)
        runner = Runner(job, injector.inject, record, settings.show, stopped)
        cleanup.callback(runner.close)
        sampler.start()
        cleanup.callback(sampler.stop)
        feeder.start()
        runner.carry_out(plan, more, lambda: time.monotonic() < began + settings.seconds)
        rows = feeder.stop()
        runner.begin(launch=False)
        if not sampler.wait_for(rows, DRAIN_SECONDS_MAX):
            settings.show(f"only {sampler.values} of {rows} rows are visible after {DRAIN_SECONDS_MAX:.0f} s")
        elif not stock:
            sampler.wait_until_judged(DRAIN_SECONDS_MAX)
        runner.close()
        sampler.stop()
        await_stable(access, injector.topics)
    source, output = read_all(access)
    missing = [*record.missing(plan), *unproven(source, output, rows, record)]
    if not feeder.aborted_rows:
        missing.append("the input has no row of an aborted transaction")
    if not stock:
        missing += unjudged(output, visibility)
    judgment = judge(source, output, visibility)
    return Result(record, judgment, visibility, runner.runs, feeder.aborted_rows, sampler.failed_samples, missing)


def read_all(access: Access) -> tuple[list[bytes], list[Row]]:
    """Return the values of the input, and the rows of the output."""
    source = [record.value or b"" for record in asyncio.run(visible_records(access, SOURCE))]
    return source, [row_of(record) for record in asyncio.run(visible_records(access, OUTPUT))]


def unproven(source: Sequence[bytes], output: Sequence[Row], rows: int, record: Record) -> list[str]:
    """Return the reasons why input and output prove too little."""
    found = []
    if sorted(source) != [b"%08d" % number for number in range(rows)]:
        found.append(f"the input has {len(source)} rows, and {rows} were committed")
    if record.faults[Fault.PARTITIONS] and all(row.partition < OUTPUT_PARTITIONS for row in output):
        found.append("no row is in a partition that was added")
    return found


def unjudged(output: Sequence[Row], visibility: Visibility) -> list[str]:
    """Return one line if the samples judged too few batches by the rule *whole*."""
    count = len({row.batch for row in output} - visibility.whole.keys())
    return [f"{count} visible batches were not judged in a sample"] if count > UNJUDGED_MAX else []
