"""`python -m tests.sim --seed 7 [--trace]` replays one seed; `--seeds 0..1000` runs a range.

Exit code 1: a seed failed.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from tests.sim.campaign import PROCESSES, explain, run_campaign
from tests.sim.options.run_options import Options, generate_options
from tests.sim.run import run_seed
from tests.sim.shrink import shrink_faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("--seed", type=int, help="replay this seed")
    selection.add_argument("--seeds", help="run a range of seeds, first..last (last excluded)")
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3, 5), help="fix the size of the cluster (default: generated from the seed)"
    )
    parser.add_argument("--shrink", action="store_true", help="find the faults without which this seed passes")
    parser.add_argument("--trace", action="store_true", help="print every event as it happens")
    parser.add_argument("--history", type=Path, help="write the history as JSON lines to this file")
    parser.add_argument("--jobs", type=int, default=PROCESSES, help="processes for a range")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        options = generate_options(arguments.seed, brokers=arguments.brokers)
        if arguments.shrink:
            return shrink(options)
        return replay(options, printing=arguments.trace, history=arguments.history)
    first, _, last = arguments.seeds.partition("..")
    seeds = range(int(first), int(last))
    campaign = run_campaign(seeds, processes=arguments.jobs, brokers=arguments.brokers)
    print(campaign.report())
    failed = bool(campaign.failed)
    if failed:
        print("failed seeds:", " ".join(str(result.seed) for result in campaign.failed))
    for result in campaign.thin:
        failed = True
        print(
            f"seed {result.seed} is too thin: {result.operations} operations, {result.transactions} transactions, "
            f"{result.faults} faults"
        )
    if campaign.unreached():
        failed = True
        print("never reached:", ", ".join(campaign.unreached()))
    return 1 if failed else 0


def shrink(options: Options) -> int:
    """Print the faults that are needed for the seed to fail."""
    faults = shrink_faults(options)
    if faults is None:
        print(f"seed {options.seed} passes")
        return 0
    print(f"seed {options.seed} fails with {len(faults)} of {len(options.faults)} faults:")
    for fault in faults:
        print(f"  {fault}")
    print(explain(run_seed(options.seed, options=replace(options, faults=faults))))
    return 1


def replay(options: Options, *, printing: bool, history: Path | None) -> int:
    seed = options.seed
    result = run_seed(seed, options=options, printing=printing, keep=True)
    if history is not None and result.history is not None:
        history.write_text("".join(f"{line}\n" for line in result.history.as_lines()))
    print(f"seed {seed}: {result.options}")
    print(
        f"{result.operations} operations, {result.transactions} transactions, {result.faults} faults, "
        f"{result.steps} steps, "
        f"{result.virtual_seconds:.1f} virtual seconds in {result.wall_seconds:.2f} s, trace {result.digest}"
    )
    for name, count in sorted(result.counters.items()):
        print(f"  {count:>7}  {name}")
    if result.passed:
        print("PASSED")
        return 0
    print(explain(result))
    return 1
