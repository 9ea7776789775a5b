"""Write flights in transactions, copy them exactly once with Spark, kill all processes, and verify every row.

Examples:
- Start three brokers, and kill two of them one after the other:
    python -m odradek.pipeline.demo
- Use a running broker or cluster:
    python -m odradek.pipeline.demo --bootstrap localhost:9092
- Use TLS and passwords (SASL_SSL), and users that may do only what they need:
    python -m odradek.pipeline.demo --secure
- Do the same on a running cluster, with the client properties of a user that may add users and ACLs:
    python -m odradek.pipeline.demo --secure --bootstrap localhost:9092 --command-config admin.properties
- Use a Spark cluster, with --out on storage that its workers share:
    python -m odradek.pipeline.demo --master spark://host:7077
- Run a short demo with the plan of seed 7:
    python -m odradek.pipeline.demo --rows 20000 --seed 7

The exit code is 0 if no row and no copy is lost, duplicated, altered, or read from an aborted transaction. The run must
also contain its planned faults:
- all kills were carried out, and those of brokers while the producer had transactions left to commit;
- one kill of the producer is proven to lie between EndTxn and its response;
- the log contains rows of aborted transactions;
- the driver of the copies was killed before and after a commit, and its Python workers were killed.
Without --bootstrap, the audit of the logs must also prove a decision, and find no violation.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from odradek.interruption import INTERRUPTED
from odradek.pipeline.flights.plan import SOURCE_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH_WITHOUT_TERMINAL = 80
"""Columns per line when standard output is not a terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return start(options, console)
    except KeyboardInterrupt:
        console.print("interrupted: all processes of the demo are stopped")
        return INTERRUPTED


def start(options: argparse.Namespace, console: Console) -> int:
    with console.status("starting"):
        # Imported here because Spark, pandas and matplotlib take seconds, which --help would spend, too.
        from odradek.pipeline.demo.main_job import EXPECTED_ERRORS, demo
    try:
        return demo(options, console)
    except EXPECTED_ERRORS as error:
        console.print("[bold red]failed:[/]", f"{type(error).__name__}: {str(error)[-3000:]}", highlight=False)
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
        "--bootstrap", metavar="HOST:PORT", help="running brokers (default: start three brokers, and kill two of them)"
    )
    parser.add_argument(
        "--secure", action="store_true", help="use SASL_SSL, and users with the ACLs that each part of the demo needs"
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="client properties for --bootstrap, in Kafka's format"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=SOURCE_ROWS, help="read only the first ROWS flights of the year")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="directory for results (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="determines kills and aborts (default: random; the demo prints it)")
    options = parser.parse_args(arguments)
    if not 0 < options.rows <= SOURCE_ROWS:
        parser.error(f"--rows must be between 1 and {SOURCE_ROWS}")
    if options.command_config is not None and options.bootstrap is None:
        parser.error("--command-config is for --bootstrap: remove it")
    if options.secure and options.bootstrap is not None and options.command_config is None:
        parser.error("--secure with --bootstrap needs --command-config: name the properties of an administrator")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
