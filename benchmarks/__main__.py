"""``make bench``: Odradek against Apache Kafka, in alternating rounds on this machine, as medians and ratios.

Exit code 1 when a figure to be reached was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.measure import Round, Size, medians, run_round
from benchmarks.systems import Kafka, Odradek

STEPS = 5
CPU_RATIO_MAX = 1.2


@dataclass(frozen=True)
class Row:
    """One line of the report. ``at_least`` or ``at_most`` is the ratio Odradek / Kafka to be reached."""

    name: str
    title: str
    at_least: float | None = None
    at_most: float | None = None
    cpu_at_most: float | None = None

    def met(self, ratio: float) -> bool:
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)

    def goal(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:.2f}x"
        return f"<= {self.at_most:.2f}x" if self.at_most is not None else ""


ROWS = (
    Row("produce_mb_s", "ProducerPerformance 1,000 B, acks=all, MB/s", at_least=0.8, cpu_at_most=CPU_RATIO_MAX),
    Row("consume_mb_s", "the same bytes by confluent-kafka, assigned, MB/s", at_least=0.8, cpu_at_most=CPU_RATIO_MAX),
    Row("transactions_1", "one-record transactions, 1 producer, /s", at_least=1.5),
    Row("transactions_1_p50_ms", "  p50 ms"),
    Row("transactions_1_p99_ms", "  p99 ms"),
    Row("transactions_8", "one-record transactions, 8 producers, /s", at_least=1.5),
    Row("transactions_8_p50_ms", "  p50 ms"),
    Row("transactions_8_p99_ms", "  p99 ms"),
    Row("start_s", "start to first commit, s", at_most=0.25),
    Row("memory_started_mib", "resident memory after it, MiB", at_most=0.25),
    Row("memory_loaded_mib", "resident memory after the load, MiB"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, epilog="Example: make bench ARGS='--rounds 5 --json bench.json'"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each broker (default 3)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of 1,000 bytes (default a million)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each transaction run (default 5)")
    parser.add_argument("--json", type=Path, help="write every figure of every round there")
    return parser.parse_args()


def run_all(rounds: int, size: Size, console: Console) -> dict[str, list[Round]]:
    results: dict[str, list[Round]] = {Kafka.name: [], Odradek.name: []}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=rounds * 2 * STEPS)
        for number in range(rounds):
            for system in (Kafka(), Odradek()):

                def step(what: str, name: str = system.name, number: int = number) -> None:
                    progress.update(task, description=f"round {number + 1} of {rounds}: {name}: {what}")
                    progress.advance(task)

                results[system.name].append(run_round(system, size, step))
    return results


def report(results: dict[str, list[Round]], console: Console) -> list[str]:
    """Print the table. Returns the rows whose goal was missed."""
    kafka = medians([one.figures for one in results[Kafka.name]])
    ours = medians([one.figures for one in results[Odradek.name]])
    kafka_cpu = medians([one.cpu for one in results[Kafka.name]])
    our_cpu = medians([one.cpu for one in results[Odradek.name]])
    table = Table(title=f"Medians of {len(results[Kafka.name])} alternating rounds")
    for title in ("", Kafka.name, Odradek.name, "ratio", "to be reached", "broker CPU s", "CPU ratio", ""):
        table.add_column(title, justify="left" if not title else "right")
    missed = []
    for row in ROWS:
        ratio = ours[row.name] / kafka[row.name]
        cpu, cpu_ratio = "", None
        if row.name in our_cpu:
            cpu = f"{kafka_cpu[row.name]:.2f} / {our_cpu[row.name]:.2f}"
            cpu_ratio = our_cpu[row.name] / max(kafka_cpu[row.name], 0.01)
        good = row.met(ratio) and (row.cpu_at_most is None or cpu_ratio is None or cpu_ratio <= row.cpu_at_most)
        if not good:
            missed.append(row.title.strip())
        verdict = "" if not row.goal() else ("[green]reached" if good else "[red]missed")
        cpu_text = "" if cpu_ratio is None else f"{cpu_ratio:.2f}x"
        if row.cpu_at_most is not None:
            cpu_text += f" (<= {row.cpu_at_most:.1f}x)"
        table.add_row(
            row.title, f"{kafka[row.name]:,.1f}", f"{ours[row.name]:,.1f}", f"{ratio:.2f}x", row.goal(), cpu, cpu_text,
            verdict,
        )  # fmt: skip
    console.print(table)
    return missed


def main() -> int:
    options = arguments()
    console = Console(width=max(160, Console().width))
    results = run_all(options.rounds, Size(options.records, options.seconds), console)
    if options.json:
        raw = {name: [{"figures": one.figures, "cpu": one.cpu} for one in rounds] for name, rounds in results.items()}
        options.json.write_text(json.dumps(raw, indent=1) + "\n")
    missed = report(results, console)
    for title in missed:
        console.print(f"missed: {title}", style="red")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
