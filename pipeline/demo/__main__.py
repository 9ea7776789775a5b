"""The main job: every flight of a year through a transactional producer that is killed, by way of brokers that are killed,
read back by Spark, judged.

Examples:
  python -m odradek.pipeline.demo                                   start three brokers, kill two of them in turn, stop them
  python -m odradek.pipeline.demo --bootstrap localhost:9092        use a broker or cluster that runs already
  python -m odradek.pipeline.demo --master spark://host:7077        compute on a Spark cluster (--out on shared storage)
  python -m odradek.pipeline.demo --rows 20000 --seed 7             a short run that can be repeated

The exit code is 0 only when no row is lost, duplicated, altered or seen from an aborted transaction, and when the run was
hard enough to show it: all kills carried out, those of brokers while there was something to commit, one of the producer's
proven to lie between EndTxn and its answer, rows of aborted transactions lying in the log.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from odradek.pipeline.flights.plan import SOURCE_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
WIDTH_WITHOUT_TERMINAL = 120


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return start(options, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started has been stopped")
        return INTERRUPTED


def start(options: argparse.Namespace, console: Console) -> int:
    with console.status("starting"):
        # Here and not above: Spark, pandas and matplotlib take seconds, and --help need not wait for them.
        from odradek.pipeline.demo.main_job import Failed, demo
    try:
        return demo(options, console)
    except Failed as failure:
        console.print("[bold red]failed:[/]", f"{type(failure).__name__}: {str(failure)[-3000:]}", highlight=False)
        return 1


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="running brokers; without it three are started and killed"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=SOURCE_ROWS, help="first flights of the year (default: all)")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="results (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of kills and aborts (default: drawn, and printed)")
    options = parser.parse_args(arguments)
    if not 0 < options.rows <= SOURCE_ROWS:
        parser.error(f"--rows must lie between 1 and {SOURCE_ROWS}")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
