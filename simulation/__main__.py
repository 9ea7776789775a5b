"""Simulate an application with a whole cluster: one seed, or a range of seeds.

MODULE:FUNCTION is a function with the decorator odradek.simulated, or an application: async def app(sim).
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.interruption import exit_with
from odradek.simulation.errors import RunFailed, UnknownTarget, UnsuitableProcess

if TYPE_CHECKING:
    from odradek.simulation.setup import Setup
    from odradek.simulation.shrink import Shrinking

HASH_SEED: Final = "0"
SEED_VARIABLE: Final = "PYTHONHASHSEED"
EXAMPLES: Final = """
examples:
  python -m odradek.simulation tests/test_orders.py:test_orders --seeds 0..200
  python -m odradek.simulation shop.orders:app --seed 7
  python -m odradek.simulation shop.orders:app --seed 7 --faults 2,5 --records 10
  python -m odradek.simulation shop.orders:app --seed 7 --trace

Seeds run in child processes. Exit code 0: all passed. 1: a seed failed. 2: a run was not possible.
"""
PASSED, FAILED, IMPOSSIBLE = 0, 1, 2
PROGRESS_SECONDS: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    options = parser().parse_args(arguments)
    try:
        fix_hash_seed()
        from odradek.simulation.parent import end_with_parent
        from odradek.simulation.target import load

        if options.parent is not None:
            end_with_parent(options.parent)
        setup = load(options.target)
        setup.check()
        if options.seed is not None:
            return replay(setup, options)
        return search(setup, options)
    except (RunFailed, UnknownTarget, UnsuitableProcess, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return IMPOSSIBLE


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.simulation",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:FUNCTION", help="what to run; FILE.py:FUNCTION is possible, too")
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("--seed", type=natural, help="replay one seed, and print its faults and events")
    selection.add_argument("--seeds", type=seeds, metavar="A..B", help="run the seeds A to B-1, or a list: 3,5,8")
    parser.add_argument("--parent", type=int, metavar="PID", help="end with this process, which started the command")
    several = parser.add_argument_group("with --seeds")
    several.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="seeds at a time (default: cores)")
    several.add_argument("--first", action="store_true", help="end with the first failed seed")
    several.add_argument(
        "--shrink-runs", type=natural, default=None, metavar="N", help="runs to reduce the first failed seed; 0: none"
    )
    one = parser.add_argument_group("with --seed")
    one.add_argument("--faults", type=numbers, metavar="N,N", help="keep only these faults of the seed, or 'none'")
    one.add_argument("--duration", type=seconds, default=1.0, metavar="X", help="multiply the duration of faults")
    one.add_argument("--records", type=natural, metavar="N", help="keep only the first records of each topic")
    one.add_argument("--until", type=seconds, metavar="S", help="end the application after these virtual seconds")
    one.add_argument("--events", type=natural, default=120, metavar="N", help="last events to print (default: 120)")
    one.add_argument("--trace", action="store_true", help="print each message and event when it happens")
    return parser


def seeds(text: str) -> list[int]:
    """Return the seeds of `A..B` or of a list."""
    first, dots, last = text.partition("..")
    found = list(range(natural(first), natural(last))) if dots else [natural(part) for part in text.split(",")]
    if not found:
        raise argparse.ArgumentTypeError(f"{text} contains no seed; the first number must be below the last one")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, or none of them."""
    return () if text == "none" else tuple(int(part) for part in text.split(","))


def natural(text: str) -> int:
    """Return a number from 0 on."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def seconds(text: str) -> float:
    """Return a number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def positive(text: str) -> int:
    """Return a number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def fix_hash_seed() -> None:
    """Start this command again with PYTHONHASHSEED=0, unless it is set: sets of strings have a random order otherwise.

    Raise UnsuitableProcess if Python ignores its environment variables.
    """
    if os.environ.get(SEED_VARIABLE) == HASH_SEED and not sys.flags.hash_randomization:
        return
    if sys.flags.ignore_environment:
        raise UnsuitableProcess(f"Start Python without -E and -I. They make it ignore {SEED_VARIABLE}.")
    os.environ[SEED_VARIABLE] = HASH_SEED
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def replay(setup: "Setup", options: argparse.Namespace) -> int:
    """Run one seed in this process, so that a debugger can stop in it. Print the result."""
    from odradek.simulation.errors import Escaped
    from odradek.simulation.setup import Reduction

    reduction = Reduction(options.faults, options.duration, options.records, options.until)
    try:
        result = setup.run(options.seed, reduction, printing=options.trace)
    except Escaped as error:
        raise RunFailed(str(error)) from error
    print(result.explain(events_max=options.events))
    return PASSED if result.passed else FAILED


class ReductionProgress:
    """Lines on standard error while a failed seed is reduced: for each smaller failure, and every PROGRESS_SECONDS."""

    def __init__(self, seed: int, runs_max: int) -> None:
        self._seed = seed
        self._runs_max = runs_max
        self._shown = time.monotonic()
        if runs_max:
            print(f"seed {seed} failed; it is repeated and reduced in at most {runs_max} runs", file=sys.stderr)

    def __call__(self, shrinking: "Shrinking", smaller: bool) -> None:
        """Print the number of runs, and the smallest failure so far."""
        if not smaller and time.monotonic() < self._shown + PROGRESS_SECONDS:
            return
        self._shown = time.monotonic()
        found = shrinking.result
        size = f"{len(found.faults)} faults, {found.virtual_seconds:.1f} virtual seconds"
        print(f"seed {self._seed}: run {shrinking.runs} of at most {self._runs_max}, {size}", file=sys.stderr)


def search(setup: "Setup", options: argparse.Namespace) -> int:
    """Run the seeds, reduce the first failed one, and print a report."""
    from odradek.simulation.campaign import report, run_seeds
    from odradek.simulation.shrink import RUNS_MAX, no_progress

    started = shown = time.monotonic()
    failed, virtual, done = [], 0.0, 0
    for result in run_seeds(setup, options.seeds, processes=options.jobs):
        done += 1
        virtual += result.virtual_seconds
        if not result.passed:
            failed.append(result)
            if options.first:
                break
        if sys.stderr.isatty() and time.monotonic() > shown + PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{done} of {len(options.seeds)} seeds, {len(failed)} failed", file=sys.stderr)
    if failed:
        runs_max = RUNS_MAX if options.shrink_runs is None else options.shrink_runs
        # A test has its own output: its report has standard error, too.
        progress = no_progress if options.parent is not None else ReductionProgress(failed[0].seed, runs_max)
        print(report(setup, options.target, failed[0], runs_max=runs_max, progress=progress))
    if len(failed) > 1:
        print("failed seeds:", *(result.seed for result in failed))
    seconds = time.monotonic() - started
    print(
        f"{done - len(failed)} passed, {len(failed)} failed, {virtual:.0f} virtual seconds in {seconds:.0f} s",
        flush=True,
    )
    return FAILED if failed else PASSED


if __name__ == "__main__":
    exit_with(main)
