"""Run brokers and clients as processes, inject faults, and check the guarantees: ``make chaos MINUTES=10``.

Exit code 1: a guarantee was violated. The violations are printed. If the machine was overloaded, exceeded time limits
do not fail the run. Lost, duplicated and reordered records always do.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from odradek.interruption import exit_with
from odradek.local.processes import BrokerFailed
from tests.chaos.report import report, write_documents, write_json
from tests.chaos.run import Options, Run
from tests.chaos.system import SYSTEMS
from tests.support.jars import ROOT

DIRECTORY = ROOT / "build" / "chaos"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make chaos", description=__doc__, epilog="Example: make chaos MINUTES=10 ARGS='--seed 7'"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of the fault injection (default 10)")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the fault plan; the same seed gives the same plan"
    )
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers (default 3)")
    parser.add_argument("--system", choices=tuple(SYSTEMS), default="odradek", help="system under test")
    parser.add_argument(
        "--plain", action="store_true", help="plaintext without users (default for Odradek: SASL_SSL, users and ACLs)"
    )
    parser.add_argument("--no-hostile", action="store_true", help="leave out the hostile client")
    parser.add_argument("--directory", type=Path, default=None, help="directory for history, logs and data")
    parser.add_argument("--plan", action="store_true", help="print the fault plan of the seed, and exit")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/chaos.md and docs/chaos.json")
    return parser.parse_args()


def main() -> int:
    options_given = arguments()
    console = Console(width=max(140, Console().width))
    seed = options_given.seed if options_given.seed is not None else time.time_ns() % 1_000_000
    options = Options(60 * options_given.minutes, seed, options_given.brokers, options_given.system)
    is_secure = options.system == "odradek" and not options_given.plain
    options = replace(options, hostile=not options_given.no_hostile, secure=is_secure)
    if options_given.plan:
        for burst in options.plan():
            console.print(f"{burst.begin:6.1f} .. {burst.end:6.1f} s")
            for fault in burst.faults:
                console.print(f"    {fault.details()}")
        return 0
    directory = options_given.directory or DIRECTORY / f"{options_given.system}-{seed}"
    started_at = time.monotonic()

    def print_progress(step: str) -> None:
        console.print(f"[dim]{time.monotonic() - started_at:6.1f} s[/dim]  {step}")

    console.print(f"seed {seed}; {'SASL_SSL' if is_secure else 'PLAINTEXT'}; history, logs and data in {directory}")
    try:
        outcome = asyncio.run(Run(options, directory, print_progress).run())
    except BrokerFailed as failure:
        console.print(f"the brokers did not start: {failure}", style="red", markup=False)
        return 1
    report(outcome, options, console)
    write_json(outcome, options, directory / "outcome.json")
    if options_given.write:
        write_documents(outcome, options)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    exit_with(main)
