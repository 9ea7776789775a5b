"""One round on one broker, and what comes of several rounds."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.systems import Running
from benchmarks.workloads import commit_one, consume, create_topic, produce, transactional, transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.systems import System

MIB = 2**20


@dataclass(frozen=True)
class Size:
    """How much one round does."""

    records: int
    transaction_seconds: float


@dataclass
class Round:
    """Figures of one round: name -> value. ``cpu`` has the broker's processor seconds for the rows that have them."""

    figures: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)


def run_round(system: System, size: Size, progress: Callable[[str], None]) -> Round:
    """Start the broker in a new folder, drive every workload through it, stop it."""
    result = Round()
    with Running(system):
        progress("start to first commit")
        began = time.perf_counter()
        system.start()
        first = transactional(system.bootstrap, "bench-first")
        commit_one(first, "first")
        result.figures["start_s"] = time.perf_counter() - began
        result.figures["memory_started_mib"] = system.usage().rss_bytes / MIB
        del first
        create_topic(system.bootstrap, "bytes")
        create_topic(system.bootstrap, "transactions")

        for row, work in workloads(system, size).items():
            progress(row)
            with_cpu(system, result, row, work)
        result.figures["memory_loaded_mib"] = system.usage().rss_bytes / MIB
    return result


def workloads(system: System, size: Size) -> dict[str, Callable[[], dict[str, float]]]:
    """Row of the report -> what gives its figures, in the order of running."""
    return {
        "produce_mb_s": lambda: {"produce_mb_s": produce(system.bootstrap, "bytes", size.records)},
        "consume_mb_s": lambda: {"consume_mb_s": consume(system.bootstrap, "bytes", size.records)},
        "transactions_1": lambda: measured(system, size, 1),
        "transactions_8": lambda: measured(system, size, 8),
    }


def measured(system: System, size: Size, producers: int) -> dict[str, float]:
    found = transactions(system.bootstrap, "transactions", producers, size.transaction_seconds)
    name = f"transactions_{producers}"
    return {name: found.per_second, f"{name}_p50_ms": found.p50_ms, f"{name}_p99_ms": found.p99_ms}


def with_cpu(system: System, result: Round, row: str, work: Callable[[], dict[str, float]]) -> None:
    before = system.usage().cpu_seconds
    figures = work()
    result.figures |= figures
    result.cpu[row] = system.usage().cpu_seconds - before


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
