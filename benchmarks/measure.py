"""Run one round of workloads on one system, and compute medians of rounds."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.failover import COMPARED_SECONDS, Timeline, kill_coordinator, kill_leader
from benchmarks.systems import BROKERS, Running
from benchmarks.workloads import commit_one, consume, create_topic, latencies, produce, transactional, transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.systems import ClusterSystem, System

MIB = 2**20
SMALL_RECORD_BYTES = 100
STEADY_PER_SECOND = 1_000
STEADY_WARM_UP_SECONDS = 3.0
LEADER, COORDINATOR = "a partition leader", "a transaction coordinator"


@dataclass(frozen=True)
class Size:
    """Amount of work of one round. `small_records` and `steady_seconds` apply to three brokers only.

    Each workload runs `warm_up_runs` times before it is measured: the JVM of Apache Kafka compiles its code meanwhile.
    """

    records: int
    transaction_seconds: float
    small_records: int = 0
    steady_seconds: float = 0.0
    warm_up_runs: int = 0


@dataclass
class Round:
    """Figures of one round, by name.

    ``cpu`` has the brokers' processor seconds of the workloads, by row of the report. `warm_up_runs` is the number of
    runs of each workload before the measured one.
    """

    figures: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    warm_up_runs: int = 0


Work = dict[str, "Callable[[], dict[str, float]]"]
"""Row of the report -> workload that returns its figures, in execution order."""


def run_round(system: System, size: Size, progress: Callable[[str], None]) -> Round:
    """Start the broker in a new directory, run all workloads, and stop it."""
    result = Round()
    with Running(system):
        start(system, result, 1, progress)
        drive(system, result, workloads(system, size), size.warm_up_runs, progress)
    return result


def run_cluster_round(system: ClusterSystem, size: Size, progress: Callable[[str], None]) -> Round:
    """Start three brokers, run all workloads, and kill the leader of a partition and then a transaction coordinator."""
    result = Round()
    with Running(system):
        start(system, result, BROKERS, progress)
        drive(system, result, cluster_workloads(system, size), size.warm_up_runs, progress)
        kill(system, result, progress)
    return result


def run_kill_round(system: ClusterSystem, progress: Callable[[str], None]) -> Round:
    """Start three brokers, and kill the leader of a partition and then a transaction coordinator."""
    result = Round()
    with Running(system):
        start(system, result, BROKERS, progress)
        kill(system, result, progress)
    return result


def kill(system: ClusterSystem, result: Round, progress: Callable[[str], None]) -> None:
    progress(f"kill -9 of {LEADER}")
    result.timelines[LEADER] = kill_leader(system, "transactions", COMPARED_SECONDS)
    progress(f"kill -9 of {COORDINATOR}")
    result.timelines[COORDINATOR] = kill_coordinator(system, "transactions", "bench-survivor", COMPARED_SECONDS)
    result.figures["leader_gap_s"] = result.timelines[LEADER].gap_s
    result.figures["coordinator_gap_s"] = result.timelines[COORDINATOR].gap_s


def start(system: System, result: Round, replicas: int, progress: Callable[[str], None]) -> None:
    progress("start to first commit")
    began = time.perf_counter()
    system.start()
    first = transactional(system.bootstrap, "bench-first")
    commit_one(first, "first")
    result.figures["start_s"] = time.perf_counter() - began
    result.figures["memory_started_mib"] = system.usage().rss_bytes / MIB
    create_topic(system.bootstrap, "bytes", replicas=replicas)
    create_topic(system.bootstrap, "transactions", replicas=replicas)
    if replicas > 1:
        create_topic(system.bootstrap, "small", replicas=replicas)


def drive(system: System, result: Round, work: Work, warm_up_runs: int, progress: Callable[[str], None]) -> None:
    """Run each workload `warm_up_runs` times, then once with its figures and CPU time in `result`."""
    result.warm_up_runs = warm_up_runs
    for row, one in work.items():
        progress(row)
        for _ in range(warm_up_runs):
            one()
        with_cpu(system, result, row, one)
    result.figures["memory_loaded_mib"] = system.usage().rss_bytes / MIB


def workloads(system: System, size: Size) -> Work:
    return {
        "produce_mb_s": lambda: {"produce_mb_s": produce(system.bootstrap, "bytes", size.records)},
        "consume_mb_s": lambda: {"consume_mb_s": consume(system.bootstrap, "bytes", size.records)},
        "transactions_1": lambda: measured(system, size, 1),
        "transactions_8": lambda: measured(system, size, 8),
    }


def cluster_workloads(system: System, size: Size) -> Work:
    both = workloads(system, size)
    return {
        "produce_mb_s": both.pop("produce_mb_s"),
        "produce_small_mb_s": lambda: small(system, size),
        "consume_mb_s": both.pop("consume_mb_s"),
        "steady_p50_ms": lambda: steady(system, size),
        **both,
    }


def small(system: System, size: Size) -> dict[str, float]:
    rate = produce(system.bootstrap, "small", size.small_records, SMALL_RECORD_BYTES)
    return {"produce_small_mb_s": rate}


def steady(system: System, size: Size) -> dict[str, float]:
    found = latencies(system.bootstrap, "transactions", STEADY_PER_SECOND, size.steady_seconds, STEADY_WARM_UP_SECONDS)
    return {"steady_p50_ms": found.p50_ms, "steady_p99_ms": found.p99_ms}


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
