"""``make chaos MINUTES=10``: real brokers, real clients, real faults, and a verdict.

Exit code 1 with the evidence when a promise was broken. A run on a machine that had no time to spare is marked as overloaded: what came too
late is not held against it, what was lost is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console

from odradek.local.processes import BrokerFailed
from tests.chaos.report import keep, report, write
from tests.chaos.run import Options, Run
from tests.chaos.system import SYSTEMS
from tests.support.kafka_broker import ROOT

DIRECTORY = ROOT / "build" / "chaos"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make chaos", description=__doc__, epilog="Example: make chaos MINUTES=10 ARGS='--seed 7'"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="draws the faults; the same seed draws the same")
    parser.add_argument("--brokers", type=int, default=3, help="how many brokers (default 3)")
    parser.add_argument("--system", choices=tuple(SYSTEMS), default="odradek", help="what is put to the test")
    parser.add_argument("--directory", type=Path, default=None, help="where history, logs and data go")
    parser.add_argument("--plan", action="store_true", help="print the faults that the seed draws, and end")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/chaos.md and docs/chaos.json")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    console = Console(width=max(140, Console().width))
    seed = given.seed if given.seed is not None else time.time_ns() % 1_000_000
    options = Options(60 * given.minutes, seed, given.brokers, given.system)
    if given.plan:
        for burst in options.plan():
            console.print(f"{burst.begin:6.1f} .. {burst.end:6.1f} s")
            for fault in burst.faults:
                console.print(f"    {fault.details()}")
        return 0
    directory = given.directory or DIRECTORY / f"{given.system}-{seed}"
    began = time.monotonic()

    def say(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/dim]  {what}")

    console.print(f"seed {seed}; history, logs and data in {directory}")
    try:
        outcome = asyncio.run(Run(options, directory, say).run())
    except BrokerFailed as failed:
        console.print(f"the brokers do not start: {failed}", style="red", markup=False)
        return 1
    report(outcome, options, console)
    keep(outcome, options, directory / "outcome.json")
    if given.write:
        write(outcome, options)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
