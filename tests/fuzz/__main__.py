"""Fuzz decoders, files, recovery and coordinator logs with damaged inputs: ``make fuzz MINUTES=5``.

An input must lead to success or to a typed error, in bounded memory and with bounded work. Exit code 1: an input
failed. The output names the file of each failed input and the command that replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.targets.table import TARGETS
from tests.fuzz.verdict import verify


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, epilog="Example: make fuzz MINUTES=1 TARGET=messages"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="duration, shared by all targets (default 5)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="fuzz only this target; may be repeated")
    parser.add_argument("--seed", type=int, default=None, help="seed of the mutations (default: from the clock)")
    parser.add_argument("--replay", type=Path, help="run one input, from the folder of its target, and show the error")
    return parser.parse_args()


def replay(path: Path) -> int:
    """Run one input. Its folder has the name of its target. Return the exit code."""
    target = TARGETS.get(path.resolve().parent.name)
    if target is None:
        print(f"{path}: the folder must have the name of a target: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    data = path.read_bytes()
    finding = verify(target, data)
    if finding is None:
        print(f"{target.name}: {len(data):,} bytes lead to success or to a typed error")
        return 0
    print(f"{target.name}: {finding.text} at {finding.place}")
    print(finding.trace)
    return 1


def main() -> int:
    options = arguments()
    if options.replay is not None:
        return replay(options.replay)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    targets = [TARGETS[name] for name in options.target or TARGETS]
    print(f"seed {seed}, {len(targets)} targets, {options.minutes:g} minutes", flush=True)
    passed = asyncio.run(Campaign(targets, 60 * options.minutes, seed, lambda text: print(text, flush=True)).run())
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
