"""``make bench``: compare Odradek with Apache Kafka, with one broker and with three, in alternating rounds on this
machine.

Print medians and ratios. Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.chart import as_text, draw
from benchmarks.measure import Round, Size, run_cluster_round, run_round
from benchmarks.report import ONE_BROKER, SECURED, THREE_BROKERS, Results, report
from benchmarks.secured import SecuredKafka, SecuredOdradek, run_secured_round
from benchmarks.systems import BROKERS, Kafka, KafkaThree, Odradek

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.failover import Timeline

STEPS_ONE, STEPS_THREE, STEPS_SECURED = 5, 9, 9
ONE, THREE, WITH_SASL_SSL = "one", "three", "sasl_ssl"
CHART = Path(__file__).resolve().parents[1] / "build" / "bench" / "kill.png"
CLUSTER_SHARE = 0.15
"""Share of the records in a run with three brokers. Each record is written three times, and Kafka needs long for it."""
SMALL_PER_RECORD = 3
STEADY_SECONDS = 4.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, epilog="Example: make bench ARGS='--rounds 5 --json bench.json'"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds per system (default 3)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of 1,000 bytes (default 1,000,000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each transaction run (default 5)")
    parser.add_argument(
        "--brokers",
        choices=(ONE, THREE, WITH_SASL_SSL),
        default=None,
        help="run only with one broker, only with three, or only with one broker that uses SASL_SSL",
    )
    parser.add_argument("--json", type=Path, help="write all figures of all rounds to this file")
    parser.add_argument(
        "--chart", type=Path, default=CHART, help=f"write the chart of the kills to this file (default {CHART})"
    )
    return parser.parse_args()


def alternate(
    rounds: int, steps: int, turns: dict[str, Callable[[Callable[[str], None]], Round]], console: Console
) -> Results:
    """Run each system once per round, in turn."""
    results: Results = {name: [] for name in turns}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=rounds * len(turns) * steps)
        for number in range(rounds):
            for name, turn in turns.items():

                def step(what: str, name: str = name, number: int = number) -> None:
                    progress.update(task, description=f"round {number + 1} of {rounds}: {name}: {what}")
                    progress.advance(task)

                results[name].append(turn(step))
    return results


def one_broker(options: argparse.Namespace, console: Console) -> Results:
    size = Size(options.records, options.seconds)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        Kafka.name: lambda step: run_round(Kafka(), size, step),
        Odradek.name: lambda step: run_round(Odradek(), size, step),
    }
    return alternate(options.rounds, STEPS_ONE, turns, console)


def one_broker_with_sasl_ssl(options: argparse.Namespace, console: Console) -> Results:
    size = Size(options.records, options.seconds)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        SecuredKafka.name: lambda step: run_secured_round(SecuredKafka(), size, step),
        SecuredOdradek.name: lambda step: run_secured_round(SecuredOdradek(), size, step),
    }
    return alternate(options.rounds, STEPS_SECURED, turns, console)


def three_brokers(options: argparse.Namespace, console: Console) -> Results:
    records = round(options.records * CLUSTER_SHARE)
    size = Size(records, options.seconds, records * SMALL_PER_RECORD, STEADY_SECONDS)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        Kafka.name: lambda step: run_cluster_round(KafkaThree(), size, step),
        Odradek.name: lambda step: run_cluster_round(Odradek(BROKERS), size, step),
    }
    return alternate(options.rounds, STEPS_THREE, turns, console)


def show_kills(results: Results, chart: Path, console: Console) -> None:
    """Print and draw, for each system, the round with the median gap."""
    kills: dict[str, dict[str, Timeline]] = {}
    for name, rounds in results.items():
        for what in rounds[0].timelines:
            timelines = sorted((one.timelines[what] for one in rounds), key=lambda timeline: timeline.gap_s)
            kills.setdefault(what, {})[name] = timelines[len(timelines) // 2]
    console.print(as_text(kills), markup=False, highlight=False, soft_wrap=True)
    draw(kills, chart)
    console.print(f"chart: {chart}")


def raw(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return all figures of all rounds, for the JSON file."""
    return {
        name: [
            {
                "figures": one.figures,
                "cpu": one.cpu,
                "acknowledged": {what: timeline.acknowledged for what, timeline in one.timelines.items()},
            }
            for one in rounds
        ]
        for name, rounds in results.items()
    }


def main() -> int:
    options = arguments()
    console = Console(width=max(160, Console().width))
    missed, kept = [], {}
    if options.brokers in {None, ONE}:
        results = one_broker(options, console)
        kept[ONE] = raw(results)
        missed += report("One broker", ONE_BROKER, results, console)
    if options.brokers in {None, WITH_SASL_SSL}:
        results = one_broker_with_sasl_ssl(options, console)
        kept[WITH_SASL_SSL] = raw(results)
        missed += report("One broker with SASL_SSL", SECURED, results, console)
    if options.brokers in {None, THREE}:
        results = three_brokers(options, console)
        kept[THREE] = raw(results)
        missed += report("Three brokers", THREE_BROKERS, results, console)
        show_kills(results, options.chart, console)
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    for title in missed:
        console.print(f"missed: {title}", style="red")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
