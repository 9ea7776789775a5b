"""Kill a Spark driver at each step of the exactly-once sink, and compare the visible rows with the input.

A transactional producer fills a topic with numbered rows. A Spark driver copies them to another topic with Spark's own
source and the sink of `odradek.spark`. The campaign kills the driver, its Python workers and brokers, and reads ledger
and data all the time.

Modes:
- txn: `odradek.spark` writes each micro-batch in one transaction, on three Odradek brokers.
- 2pc: `odradek.spark` writes in a transaction per task, with a two-phase commit.
- stock: Spark's own Kafka sink under kills of driver and leaders. Duplicates are expected: they do not fail it.
- kafka: mode txn on Apache Kafka. `make eos MODE=kafka` starts it from a source tree.

Examples:
    python -m odradek.pipeline.eos_campaign --mode txn --minutes 10
    python -m odradek.pipeline.eos_campaign --mode stock --seed 7

The exit code is 0 if no row is lost or duplicated, no batch was visible in part, and all planned faults happened.
With --runs, fewer faults are planned, and the last line begins with PARTIAL in place of PASSED.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from odradek.client import ClientError
from odradek.pipeline.cluster.demo_cluster import BROKERS, DemoCluster
from odradek.pipeline.eos.campaign import OUTPUT_PARTITIONS, Settings, run_campaign
from odradek.pipeline.eos.driver import STOCK_STEPS
from odradek.pipeline.eos.plan import Mode, generate
from odradek.pipeline.eos.report import WIDTH, lines, passed
from odradek.spark import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from odradek.pipeline.eos.injector import Brokers

EXPECTED_ERRORS: Final = (ClientError, KafkaException, OSError, RuntimeError)
"""Errors that causes outside this program can raise. They are printed without a traceback; others are defects."""


@contextmanager
def odradek_brokers(mode: Mode, out: Path) -> Iterator[Brokers]:
    """Start Odradek brokers for a mode, and stop them at the end."""
    options = ["--two-phase-commit"] if mode is Mode.TWO_PHASE else []
    cluster = DemoCluster(out / "cluster", out / "cluster.log", brokers=BROKERS, options=options)
    try:
        yield cluster
    finally:
        cluster.stop()


def steps_of(mode: Mode) -> tuple[str, ...]:
    """Return the names of the steps of a batch."""
    if mode is Mode.STOCK:
        return STOCK_STEPS
    return tuple(step.name for step in STEPS["2pc" if mode is Mode.TWO_PHASE else "txn"])


def show(line: str) -> None:
    """Print a line, in several lines if it is longer than the report."""
    print(textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False), flush=True)


def main(
    arguments: Sequence[str] | None = None,
    brokers: Callable[[Mode, Path], AbstractContextManager[Brokers]] = odradek_brokers,
) -> int:
    """Run a campaign on new brokers. Return the exit code."""
    options = parse(arguments)
    mode, out = Mode(options.mode), options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    steps = steps_of(mode)
    whole = generate(options.seed, mode, steps, OUTPUT_PARTITIONS)
    plan = whole[: options.runs]
    is_partial = len(plan) < len(whole)
    settings = Settings(mode, options.seed, steps, plan, options.minutes * 60, out, show, is_partial)
    runs = f"{len(plan)} of {len(whole)} planned runs"
    show(f"exactly-once campaign: mode {mode}, seed {options.seed}, {runs}, logs in {out}")
    try:
        with brokers(mode, out) as cluster:
            result = run_campaign(settings, cluster)
    except EXPECTED_ERRORS as error:
        show(f"FAILED with seed {options.seed}: {type(error).__name__}: {str(error)[-3000:]}")
        return 1
    for line in lines(settings, result):
        show(line)
    show(f"repeat with: make eos MODE={mode} SEED={options.seed}")
    return 0 if passed(settings, result) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.eos_campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.TXN.value)
    parser.add_argument("--minutes", type=float, default=10, help="minimum duration of the runs (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="determines the plan (default: random; the campaign prints it)")
    parser.add_argument("--runs", type=int, help="carry out only the first RUNS planned runs")
    parser.add_argument(
        "--out", type=Path, default=Path("build/eos"), help="directory for logs and data (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    return options


if __name__ == "__main__":
    sys.exit(main())
