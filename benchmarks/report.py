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
CPU_SECONDS_MIN = 0.01
"""Least processor seconds that a ratio divides by: the resolution of the kernel's counter."""
ONE, THREE, WITH_SASL_SSL, KILLS = "one", "three", "sasl_ssl", "kills"
"""Parts of a run. `KILLS` is the last phase of `THREE` alone."""

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


KILL_ROWS = (
    Row("leader_gap_s", "longest gap after kill -9 of a leader, s", at_most=0.25, ours_at_most=2.0),
    Row("coordinator_gap_s", "longest gap after kill -9 of a coordinator, s", at_most=0.25, ours_at_most=2.0),
)
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
    Row("memory_loaded_mib", "SASL_SSL: resident memory after the load, MiB"),
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
    *KILL_ROWS,
)


@dataclass(frozen=True)
class Part:
    """Part of a run of `make bench`."""

    title: str
    rows: tuple[Row, ...]


PARTS = {
    ONE: Part("One broker", ONE_BROKER),
    WITH_SASL_SSL: Part("One broker with SASL_SSL", SECURED),
    THREE: Part("Three brokers", THREE_BROKERS),
    KILLS: Part("Kills of one of three brokers", KILL_ROWS),
}


@dataclass(frozen=True)
class Line:
    """Medians of one row, and whether they meet its targets. `cpu` is None if the row has no processor seconds."""

    row: Row
    kafka: float
    ours: float
    cpu: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        return self.ours / self.kafka

    @property
    def cpu_ratio(self) -> float | None:
        return None if self.cpu is None else self.cpu[1] / max(self.cpu[0], CPU_SECONDS_MIN)

    @property
    def met(self) -> bool:
        bound, ratio = self.row.cpu_at_most, self.cpu_ratio
        return self.row.met(self.ratio, self.ours) and (bound is None or ratio is None or ratio <= bound)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row, without the result."""
        cpu = "" if self.cpu is None else f"{self.cpu[0]:.2f} / {self.cpu[1]:.2f}"
        cpu_ratio = "" if self.cpu_ratio is None else f"{self.cpu_ratio:.2f}x"
        if self.row.cpu_at_most is not None:
            cpu_ratio += f" (<= {self.row.cpu_at_most:.1f}x)"
        return (
            self.row.title, shown(self.kafka), shown(self.ours), f"{self.ratio:.2f}x", self.row.target(), cpu, cpu_ratio
        )  # fmt: skip

    def result(self) -> str:
        if not self.row.target():
            return ""
        return "met" if self.met else "missed"


HEADINGS = ("", Kafka.name, Odradek.name, "ratio", "target", "broker CPU s", "CPU ratio", "")
"""Headings of the cells of a line, and of its result."""


def lines(rows: tuple[Row, ...], results: Results) -> list[Line]:
    """Return the lines of a table: medians of all rounds."""
    kafka, ours = (medians([one.figures for one in results[name]]) for name in (Kafka.name, Odradek.name))
    kafka_cpu, our_cpu = (medians([one.cpu for one in results[name]]) for name in (Kafka.name, Odradek.name))
    return [
        Line(
            row, kafka[row.name], ours[row.name],
            (kafka_cpu[row.name], our_cpu[row.name]) if row.name in our_cpu else None,
        )
        for row in rows
    ]  # fmt: skip


def table_title(part: Part, results: Results) -> str:
    rounds = results[Kafka.name]
    title = f"{part.title}: " + (f"medians of {len(rounds)} alternating rounds" if len(rounds) > 1 else "one round")
    return title + (f", warm-up runs per workload: {warm_up}" if (warm_up := rounds[0].warm_up_runs) else "")


def report(part: Part, results: Results, console: Console) -> list[str]:
    """Print the table. Return the titles of the rows that missed their target."""
    table = Table(title=table_title(part, results))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if not heading else "right")
    found = lines(part.rows, results)
    for line in found:
        result = line.result()
        color = "green" if line.met else "red"
        table.add_row(*line.cells(), f"[{color}]{result}" if result else "")
    console.print(table)
    return [f"{part.title}: {line.row.title.strip()}" for line in found if not line.met]


def shown(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
