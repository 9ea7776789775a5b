"""Rows of the report with their targets, and the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.measure import Round, medians
from benchmarks.systems import Kafka, Odradek

if TYPE_CHECKING:
    from rich.console import Console

CPU_RATIO_MAX = 1.2

Results = dict[str, list[Round]]
"""Rounds of each system, by its name."""


@dataclass(frozen=True)
class Row:
    """One row of the report, with its targets.

    ``at_least`` and ``at_most`` are bounds of the ratio Odradek / Kafka. ``ours_at_most`` is a bound of Odradek's
    figure.
    """

    name: str
    title: str
    at_least: float | None = None
    at_most: float | None = None
    cpu_at_most: float | None = None
    ours_at_most: float | None = None

    def met(self, ratio: float, ours: float) -> bool:
        return (
            (self.at_least is None or ratio >= self.at_least)
            and (self.at_most is None or ratio <= self.at_most)
            and (self.ours_at_most is None or ours <= self.ours_at_most)
        )

    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:.2f}x"
        own = "" if self.ours_at_most is None else f", <= {self.ours_at_most:g}"
        return f"<= {self.at_most:.2f}x{own}" if self.at_most is not None else ""


ONE_BROKER = (
    Row("produce_mb_s", "ProducerPerformance 1,000 B, acks=all, MB/s", at_least=0.8, cpu_at_most=CPU_RATIO_MAX),
    Row(
        "consume_mb_s", "the same records by a confluent-kafka consumer, MB/s", at_least=0.8, cpu_at_most=CPU_RATIO_MAX
    ),
    Row("transactions_1", "one-record transactions, 1 producer, /s", at_least=1.5),
    Row("transactions_1_p50_ms", "  p50 ms"),
    Row("transactions_1_p99_ms", "  p99 ms"),
    Row("transactions_8", "one-record transactions, 8 producers, /s", at_least=1.5),
    Row("transactions_8_p50_ms", "  p50 ms"),
    Row("transactions_8_p99_ms", "  p99 ms"),
    Row("start_s", "start to first commit, s", at_most=0.25),
    Row("memory_started_mib", "resident memory after the start, MiB", at_most=0.25),
    Row("memory_loaded_mib", "resident memory after the load, MiB"),
)
SECURED = (
    Row("produce_secured_mb_s", "SASL_SSL: ProducerPerformance 1,000 B, acks=all, MB/s", at_least=1.0),
    Row("consume_secured_mb_s", "SASL_SSL: the same records by a confluent-kafka consumer, MB/s", at_least=1.0),
    Row("transactions_1_secured", "SASL_SSL: one-record transactions, 1 producer, /s", at_least=1.5),
    Row("transactions_8_secured", "SASL_SSL: one-record transactions, 8 producers, /s", at_least=1.5),
    Row("produce_mb_s", "plaintext: ProducerPerformance, MB/s"),
    Row("consume_mb_s", "plaintext: consumer, MB/s"),
    Row("transactions_1", "plaintext: transactions, 1 producer, /s"),
    Row("transactions_8", "plaintext: transactions, 8 producers, /s"),
    Row("produce_share", "SASL_SSL relative to plaintext: produce"),
    Row("consume_share", "SASL_SSL relative to plaintext: consume"),
    Row("transactions_1_share", "SASL_SSL relative to plaintext: transactions, 1 producer"),
    Row("transactions_8_share", "SASL_SSL relative to plaintext: transactions, 8 producers"),
    Row("memory_loaded_mib", "resident memory after the load, MiB"),
)
THREE_BROKERS = (
    Row("produce_mb_s", "ProducerPerformance 1,000 B, acks=all, MB/s", at_least=2.0),
    Row("produce_small_mb_s", "ProducerPerformance 100 B, acks=all, MB/s", at_least=2.0),
    Row("consume_mb_s", "1,000 B by a confluent-kafka consumer, MB/s", at_least=1.2),
    Row("steady_p50_ms", "1,000 records/s, linger 0: p50 ms", at_most=0.5),
    Row("steady_p99_ms", "  p99 ms", at_most=0.5),
    Row("transactions_1", "one-record transactions, 1 producer, /s", at_least=5.0),
    Row("transactions_1_p50_ms", "  p50 ms"),
    Row("transactions_1_p99_ms", "  p99 ms"),
    # The target was 4.0 against Kafka 4.3.1. Kafka 4.4.0 commits 14 % more of these transactions (medians of three
    # alternating rounds: 148/s and 130/s), so 3.5 is the same rate.
    Row("transactions_8", "one-record transactions, 8 producers, /s", at_least=3.5),
    Row("transactions_8_p50_ms", "  p50 ms"),
    Row("transactions_8_p99_ms", "  p99 ms"),
    Row("start_s", "start to first commit, s", at_most=0.25),
    Row("memory_started_mib", "resident memory after the start, MiB", at_most=0.25),
    Row("memory_loaded_mib", "resident memory after the load, MiB", at_most=0.35),
    Row("leader_gap_s", "longest gap after kill -9 of a leader, s", at_most=0.25, ours_at_most=2.0),
    Row("coordinator_gap_s", "longest gap after kill -9 of a coordinator, s", at_most=0.25, ours_at_most=2.0),
)


def report(title: str, rows: tuple[Row, ...], results: Results, console: Console) -> list[str]:
    """Print the table. Return the titles of the rows that missed their target."""
    kafka = medians([one.figures for one in results[Kafka.name]])
    ours = medians([one.figures for one in results[Odradek.name]])
    kafka_cpu = medians([one.cpu for one in results[Kafka.name]])
    our_cpu = medians([one.cpu for one in results[Odradek.name]])
    table = Table(title=f"{title}: medians of {len(results[Kafka.name])} alternating rounds")
    for heading in ("", Kafka.name, Odradek.name, "ratio", "target", "broker CPU s", "CPU ratio", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    missed = []
    for row in rows:
        ratio = ours[row.name] / kafka[row.name]
        cpu, cpu_ratio = "", None
        if row.name in our_cpu:
            cpu = f"{kafka_cpu[row.name]:.2f} / {our_cpu[row.name]:.2f}"
            cpu_ratio = our_cpu[row.name] / max(kafka_cpu[row.name], 0.01)
        cpu_met = row.cpu_at_most is None or cpu_ratio is None or cpu_ratio <= row.cpu_at_most
        met = row.met(ratio, ours[row.name]) and cpu_met
        if not met:
            missed.append(f"{title}: {row.title.strip()}")
        result = "" if not row.target() else ("[green]met" if met else "[red]missed")
        cpu_text = "" if cpu_ratio is None else f"{cpu_ratio:.2f}x"
        if row.cpu_at_most is not None:
            cpu_text += f" (<= {row.cpu_at_most:.1f}x)"
        table.add_row(
            row.title, shown(kafka[row.name]), shown(ours[row.name]), f"{ratio:.2f}x", row.target(), cpu, cpu_text,
            result,
        )  # fmt: skip
    console.print(table)
    return missed


def shown(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
