"""Fuzz decoders, files, recovery and coordinator logs with damaged inputs: ``make fuzz MINUTES=5``.

An input must lead to success or to a typed error, in bounded memory and with bounded work. Exit code 1: an input
failed. The output names the file of each failed input and the command that replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.interruption import exit_with
from tests.fuzz.campaign import Campaign
from tests.fuzz.coverage import selected
from tests.fuzz.folders import CORPUS, SCRATCH, inputs, write
from tests.fuzz.targets.table import TARGETS
from tests.fuzz.verdict import verify

if TYPE_CHECKING:
    from tests.fuzz.target import Target


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, epilog="Example: make fuzz MINUTES=1 TARGET=messages"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="duration, shared by all targets (default 5)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="fuzz only this target; may be repeated")
    parser.add_argument("--seed", type=int, default=None, help="seed of the mutations (default: from the clock)")
    parser.add_argument("--replay", type=Path, help="run one input, from the folder of its target, and show the error")
    parser.add_argument(
        "--update-corpus", action="store_true", help="select the corpus from it and from the inputs of the last run"
    )
    return parser.parse_args()


def update_corpus(target: Target) -> None:
    """Replace the corpus of a target by the smallest inputs that reach different paths."""
    folder = CORPUS / target.name
    candidates = [*inputs(folder).values(), *inputs(SCRATCH / target.name).values()]
    chosen = selected(target, [data for data in candidates if verify(target, data) is None])
    shutil.rmtree(folder, ignore_errors=True)
    if chosen:
        write(folder, chosen)
    size = sum(map(len, chosen))
    print(
        f"{target.name:<22} {len(candidates):>7,} inputs, {len(chosen):>4,} selected with {size:>7,} bytes", flush=True
    )


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
    if options.update_corpus:
        for target in targets:
            update_corpus(target)
        return 0
    print(f"seed {seed}, {len(targets)} targets, {options.minutes:g} minutes", flush=True)
    passed = asyncio.run(Campaign(targets, 60 * options.minutes, seed, lambda text: print(text, flush=True)).run())
    return 0 if passed else 1


if __name__ == "__main__":
    exit_with(main)
