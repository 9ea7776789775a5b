"""``make bench``: compare Odradek with Apache Kafka, with one broker and with three, in alternating rounds on this
machine.

Print medians and ratios, and write bench.json, the picture of the kills, and a report in HTML to `build/bench`.
Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.chart import as_text, draw, median_timelines
from benchmarks.measure import Round, Size, run_cluster_round, run_kill_round, run_round
from benchmarks.page import PAGE, write_page
from benchmarks.recording import BENCH, Bench, about_now, write_bench
from benchmarks.report import KILLS, ONE, PARTS, THREE, WITH_SASL_SSL, Results, report
from benchmarks.secured import SecuredKafka, SecuredOdradek, run_secured_round
from benchmarks.systems import BROKERS, Kafka, KafkaThree, Odradek

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_ONE, STEPS_THREE, STEPS_SECURED, STEPS_KILLS = 5, 9, 10, 3
CHART = "kill.svg"
"""Name of the picture of the kills. A PNG of the same name is beside it."""
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
        "--warm-up",
        type=int,
        default=0,
        metavar="RUNS",
        help="run each workload this many times before it is measured (default 0: both systems have just started)",
    )
    parser.add_argument(
        "--brokers",
        choices=(ONE, WITH_SASL_SSL, THREE, KILLS),
        default=None,
        help="run only with one broker, with one broker that uses SASL_SSL, with three, or only the kills of three",
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=BENCH,
        help=f"write all figures of all rounds to this file, and the report beside it (default {BENCH})",
    )
    options = parser.parse_args()
    if options.warm_up < 0:
        parser.error(f"--warm-up {options.warm_up}: give 0 or more runs")
    if options.warm_up and options.brokers == KILLS:
        parser.error("--warm-up: the kills have no workload that can run before them; omit it")
    return options


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
    size = Size(options.records, options.seconds, warm_up_runs=options.warm_up)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        Kafka.name: lambda step: run_round(Kafka(), size, step),
        Odradek.name: lambda step: run_round(Odradek(), size, step),
    }
    return alternate(options.rounds, STEPS_ONE, turns, console)


def one_broker_with_sasl_ssl(options: argparse.Namespace, console: Console) -> Results:
    size = Size(options.records, options.seconds, warm_up_runs=options.warm_up)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        SecuredKafka.name: lambda step: run_secured_round(SecuredKafka, size, step),
        SecuredOdradek.name: lambda step: run_secured_round(SecuredOdradek, size, step),
    }
    return alternate(options.rounds, STEPS_SECURED, turns, console)


def three_brokers(options: argparse.Namespace, console: Console) -> Results:
    records = round(options.records * CLUSTER_SHARE)
    size = Size(records, options.seconds, records * SMALL_PER_RECORD, STEADY_SECONDS, options.warm_up)
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        Kafka.name: lambda step: run_cluster_round(KafkaThree(), size, step),
        Odradek.name: lambda step: run_cluster_round(Odradek(BROKERS), size, step),
    }
    return alternate(options.rounds, STEPS_THREE, turns, console)


def kills_of_three(options: argparse.Namespace, console: Console) -> Results:
    turns: dict[str, Callable[[Callable[[str], None]], Round]] = {
        Kafka.name: lambda step: run_kill_round(KafkaThree(), step),
        Odradek.name: lambda step: run_kill_round(Odradek(BROKERS), step),
    }
    return alternate(options.rounds, STEPS_KILLS, turns, console)


RUNS = {ONE: one_broker, WITH_SASL_SSL: one_broker_with_sasl_ssl, THREE: three_brokers, KILLS: kills_of_three}


def show_kills(results: Results, chart: Path, console: Console) -> None:
    """Print and draw, for each system, the round with the median gap."""
    kills = median_timelines(results)
    console.print(as_text(kills), markup=False, highlight=False, soft_wrap=True)
    draw(kills, chart)
    console.print(f"chart: {chart}")


def main() -> int:
    options = arguments()
    console = Console(width=max(160, Console().width))
    missed: list[str] = []
    bench = Bench(about_now(), {})
    for part in [options.brokers] if options.brokers else [ONE, WITH_SASL_SSL, THREE]:
        results = bench.parts[part] = RUNS[part](options, console)
        missed += report(PARTS[part], results, console)
        if part in {THREE, KILLS}:
            show_kills(results, options.json.with_name(CHART), console)
        write_bench(options.json, bench)
    page = write_page(options.json.with_name(PAGE), bench)
    console.print(f"report: {page}")
    for title in missed:
        console.print(f"missed: {title}", style="red")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
