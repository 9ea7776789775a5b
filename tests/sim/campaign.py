"""Campaign: many seeds on two processes, with progress, speed, reached events, and commands to replay failures."""

import functools
import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing import resource_tracker
from typing import Final

from odradek.interruption import interrupts_blocked
from tests.sim.faults.fault import DAYS
from tests.sim.options import cluster_options as clusters
from tests.sim.options import run_options as single
from tests.sim.options.disk_options import (
    DELAYED_BY_METADATA_THREAD,
    DELAYED_BY_SHARED_THREADS,
    ERROR_EVENTS,
    FILE_EVENTS,
    REFUSED_BY_FULL_DISK,
)
from tests.sim.options.run_options import generate_options
from tests.sim.result import Result
from tests.sim.run import run_seed
from tests.sim.transition_coverage import Cell, report, since, unmet, visits
from tests.sim.watchers.producers import EVICTED, EXPIRED
from tests.sim.workloads.codecs import CODEC_NAMES
from tests.support.hostile_attack import KINDS, VOTES

PROCESSES: Final = 2
SEEDS_PER_PROCESS: Final = 50
COLLECTION_THRESHOLDS: Final = (20_000, 20, 20)
"""Thresholds of the garbage collector in a worker process. With Python's defaults, it takes 19 % of a run's time."""
REPORT_SECONDS: Final = 5.0

REACHABLE: Final = (
    "time-out abort",
    "marker retry",
    "duplicate sequence",
    "epoch overflow",
    "segment roll inside a transaction",
    "kill between prepare and complete",
    "late EndTxn",
    f"fault {DAYS}",
    DELAYED_BY_SHARED_THREADS,
    DELAYED_BY_METADATA_THREAD,
)
"""Events that a campaign must reach. It fails otherwise, because it has tested nothing about them."""
REACHABLE_BY_BATCHES: Final = (
    *(f"batch compressed with {name}" for name in CODEC_NAMES.values()),
    "batch with an old timestamp",
    "batch with a timestamp in the future",
    "producer continued after its expiration",
    EXPIRED,
    EVICTED,
)
"""Events of runs that vary codecs, timestamps and the expiration of producers: half of all runs."""
REACHABLE_BY_CLUSTERS: Final = (
    "leader change",
    "controller election",
    "ISR shrunk",
    "ISR expanded",
    "log truncated",
    "coordinator fail-over between prepare and complete",
    "un-synced data lost",
    "log damaged",
    "data loss repaired",
    "disk replaced by an empty one",
    "reassignment completed",
    "topic deleted",
    "metadata snapshot fetched",
    "one broker left stopped",
    "one broker left isolated",
    "refused: not the leader",
    "refused: not the coordinator",
    "refused: not enough replicas",
    DELAYED_BY_SHARED_THREADS,
    DELAYED_BY_METADATA_THREAD,
)
"""Events of runs with several brokers."""
REACHABLE_BY_DISK_FAULTS: Final = (*ERROR_EVENTS, REFUSED_BY_FULL_DISK)
"""Kinds of failed disk operations, in runs whose disks fail."""
REACHABLE_BY_MANY_DISK_FAULTS: Final = FILE_EVENTS
"""Kinds of files and directories on which a disk operation fails: a run has at most three failures."""
REACHABLE_BY_GROUPS: Final = (
    "classic generation",
    "epoch of a consumer group",
    "group upgraded",
    "group downgraded",
    "member failed",
    "member left",
    "member fenced from its group",
    "fenced in the middle of a transaction",
    "zombie continues",
    "pause in the middle of a transaction of a group",
    "commit of a fenced member refused",
    "offsets pending in an open transaction withheld",
    "offsets of a transaction aborted",
    "offsets of a transaction committed",
    "member with other metadata joins again",
    "member joins again unchanged",
    "member sleeps before it requests its assignment",
    "several members leave in one request",
    "member subscribes to something else",
    "member keeps a partition that it must revoke",
    "simple consumer commits",
    "offsets returned to a simple consumer",
    "offset deleted",
    "group deleted",
    "visitor joins the group of a simple consumer",
)
"""Events of runs with groups."""
REACHABLE_BY_GROUPS_OF_CLUSTERS: Final = ("group coordinator fail-over with offsets pending",)
REACHABLE_BY_COMPACTION: Final = (
    "cleaned segments",
    "restart in the middle of a swap",
    "coordinator loaded a compacted log",
)
"""Events of runs with compaction."""
REACHABLE_BY_COMPACTION_OF_CLUSTERS: Final = ("follower fetched over a compaction gap",)
REACHABLE_BY_TABLES: Final = (
    "record of a compacted topic cleaned away",
    "aborted record of a compacted topic cleaned away",
    "batch of a compacted topic kept without its records",
)
"""Events of runs whose clients write to a compacted topic."""
REACHABLE_BY_MANY_TABLES: Final = (
    "tombstone of a compacted topic cleaned away",
    "marker of a compacted topic cleaned away",
)
"""Rare events of these runs: a run is short, and only single-broker runs remove tombstones and markers in that time."""
REACHABLE_BY_HOSTILE_CLIENTS: Final = tuple(f"hostile: {kind}" for kind in KINDS)
"""Attacks that reach a broker, in runs with a hostile client."""
REACHABLE_BY_TENANTS: Final = (
    "client authenticated again",
    "ACL changed",
    "ACL probe allowed",
    "ACL probe denied",
    "intrusion refused",
    "intrusion ended the connection",
    "login of an intruder refused",
    "session of an intruder ended",
    "token created",
    "token renewed",
    "token removed",
    "token refused",
    "login by a token",
    "session of a token ended",
)
"""Events of runs with SASL and ACLs."""
REACHABILITY_HOSTILE_MIN: Final = 10
REACHABILITY_TENANTS_MIN: Final = 20
REACHABILITY_DISK_FAULTS_MIN: Final = 20
REACHABILITY_MANY_DISK_FAULTS_MIN: Final = 2_000
REACHABILITY_TABLES_MIN: Final = 15
REACHABILITY_MANY_TABLES_MIN: Final = 150
REACHABILITY_COMPACTION_MIN: Final = 40
REACHABILITY_GROUPS_MIN: Final = 30
REACHABILITY_EVENTS_MIN: Final = 60
REACHABILITY_RARE_EVENTS_MIN: Final = 100
REACHABILITY_SEEDS_MIN: Final = 100
REACHABILITY_SINGLE_MIN: Final = 60

LEAST_OF_SINGLE_BROKERS: Final = (single.OPERATIONS_MIN, 100, single.FAULTS_CERTAIN)
LEAST_OF_CLUSTERS: Final = (150, 20, clusters.FAULTS_CERTAIN)
"""Minimum operations, transactions and faults of a run. A run with fewer tests too little."""


class Campaign:
    """Totals over the seeds that were run."""

    def __init__(self) -> None:
        self.failed: list[Result] = []
        self.thin: list[Result] = []
        self.counters: dict[str, int] = {}
        self.cells: Counter[Cell] = Counter()
        self.seeds = 0
        self.cluster_seeds = 0
        self.group_seeds = 0
        self.compaction_seeds = 0
        self.table_seeds = 0
        self.hostile_seeds = 0
        self.tenant_seeds = 0
        self.disk_fault_seeds = 0
        self.operations = 0
        self.transactions = 0
        self.faults = 0
        self.virtual_seconds = 0.0
        self.started = time.monotonic()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.cluster_seeds += result.brokers > 1
        self.group_seeds += result.groups
        self.compaction_seeds += result.compaction
        self.table_seeds += result.table
        self.hostile_seeds += result.hostile
        self.tenant_seeds += result.security
        self.disk_fault_seeds += result.disk_faults
        self.operations += result.operations
        self.transactions += result.transactions
        self.faults += result.faults
        self.virtual_seconds += result.virtual_seconds
        for name, count in result.counters.items():
            self.counters[name] = self.counters.get(name, 0) + count
        self.cells.update(result.cells)
        if not result.passed:
            self.failed.append(result)
        least = LEAST_OF_SINGLE_BROKERS if result.brokers == 1 else LEAST_OF_CLUSTERS
        if any(
            actual < needed
            for actual, needed in zip((result.operations, result.transactions, result.faults), least, strict=True)
        ):
            self.thin.append(result)

    @property
    def wall_seconds(self) -> float:
        return time.monotonic() - self.started

    def unreached(self) -> list[str]:
        """Return the events that did not occur, for each kind of run of which the campaign had enough."""
        expected: list[str] = []
        if self.seeds - self.cluster_seeds >= REACHABILITY_SINGLE_MIN:
            expected += (*REACHABLE, *REACHABLE_BY_BATCHES)
        if self.cluster_seeds >= REACHABILITY_SEEDS_MIN:
            expected += REACHABLE_BY_CLUSTERS
        if self.group_seeds >= REACHABILITY_GROUPS_MIN:
            expected += REACHABLE_BY_GROUPS
            expected += REACHABLE_BY_GROUPS_OF_CLUSTERS if self.cluster_seeds >= REACHABILITY_SEEDS_MIN else ()
        if self.compaction_seeds >= REACHABILITY_COMPACTION_MIN:
            expected += REACHABLE_BY_COMPACTION
            expected += REACHABLE_BY_COMPACTION_OF_CLUSTERS if self.cluster_seeds >= REACHABILITY_SEEDS_MIN else ()
        if self.table_seeds >= REACHABILITY_TABLES_MIN:
            expected += REACHABLE_BY_TABLES
            expected += REACHABLE_BY_MANY_TABLES if self.table_seeds >= REACHABILITY_MANY_TABLES_MIN else ()
        if self.cluster_seeds >= REACHABILITY_SEEDS_MIN:
            expected.append(f"hostile: {VOTES}")
        if self.hostile_seeds >= REACHABILITY_HOSTILE_MIN:
            expected += REACHABLE_BY_HOSTILE_CLIENTS
        if self.tenant_seeds >= REACHABILITY_TENANTS_MIN:
            expected += REACHABLE_BY_TENANTS
        if self.disk_fault_seeds >= REACHABILITY_DISK_FAULTS_MIN:
            expected += REACHABLE_BY_DISK_FAULTS
        if self.disk_fault_seeds >= REACHABILITY_MANY_DISK_FAULTS_MIN:
            expected += REACHABLE_BY_MANY_DISK_FAULTS
        rare = self.group_seeds >= REACHABILITY_RARE_EVENTS_MIN
        events = unmet(self.cells, rare=rare) if self.group_seeds >= REACHABILITY_EVENTS_MIN else []
        return [name for name in expected if not self.counters.get(name)] + events

    def progress(self) -> str:
        rate = self.seeds / max(self.wall_seconds, 1e-9)
        return (
            f"{self.seeds} seeds ({self.cluster_seeds} of clusters, {self.group_seeds} with groups, "
            f"{self.compaction_seeds} with compaction, {self.table_seeds} with tables, "
            f"{self.hostile_seeds} with a hostile client, {self.tenant_seeds} with ACLs, "
            f"{self.disk_fault_seeds} with failing disks), "
            f"{len(self.failed)} failed, {rate:.2f}/s ({rate * 3600:.0f}/h), {self.operations} operations, "
            f"{self.transactions} transactions, {self.faults} faults, {self.virtual_seconds / 3600:.2f} virtual hours"
        )

    def report(self) -> str:
        lines = [self.progress(), "reached:"]
        named = (
            *REACHABLE,
            *REACHABLE_BY_BATCHES,
            *(REACHABLE_BY_CLUSTERS if self.cluster_seeds else ()),
            *((*REACHABLE_BY_GROUPS, *REACHABLE_BY_GROUPS_OF_CLUSTERS) if self.group_seeds else ()),
            *((*REACHABLE_BY_COMPACTION, *REACHABLE_BY_COMPACTION_OF_CLUSTERS) if self.compaction_seeds else ()),
            *((*REACHABLE_BY_TABLES, *REACHABLE_BY_MANY_TABLES) if self.table_seeds else ()),
            *(REACHABLE_BY_HOSTILE_CLIENTS if self.hostile_seeds else ()),
            *(REACHABLE_BY_TENANTS if self.tenant_seeds else ()),
            *((*REACHABLE_BY_DISK_FAULTS, *REACHABLE_BY_MANY_DISK_FAULTS) if self.disk_fault_seeds else ()),
        )
        lines += [f"  {self.counters.get(name, 0):>7}  {name}" for name in dict.fromkeys(named)]
        lines += [f"  {count:>7}  {name}" for name, count in sorted(self.counters.items()) if name not in named]
        return "\n".join([*lines, "tables:", *report(self.cells)])


def run_range(
    seeds: Iterable[int], *, processes: int = PROCESSES, brokers: int | None = None, disk_faults: bool | None = None
) -> Iterator[Result]:
    """Yield results as they complete; one process runs the seeds in order.

    `brokers` fixes the cluster size, and `disk_faults` whether disks fail.
    """
    run = functools.partial(run_generated, brokers=brokers, disk_faults=disk_faults)
    if processes <= 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    resource_tracker.ensure_running()  # its start, with the first child process, would unblock SIGINT
    with interrupts_blocked():
        workers = context.Pool(processes, _collect_rarely, maxtasksperchild=SEEDS_PER_PROCESS)
    with workers as pool:
        yield from pool.imap_unordered(run, seeds)


def _collect_rarely() -> None:
    """Leave the imported modules out of garbage collections, and collect less often."""
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)


def run_generated(seed: int, *, brokers: int | None = None, disk_faults: bool | None = None) -> Result:
    before = visits()
    result = run_seed(seed, options=generate_options(seed, brokers=brokers, disk_faults=disk_faults))
    return replace(result, cells=since(before))


def explain(result: Result) -> str:
    """Return the findings of a failing seed and the commands to replay it."""
    lines = [f"seed {result.seed} FAILED ({result.options})"]
    lines += [f"  {line}" for finding in result.findings[:12] for line in finding.rstrip().splitlines()[-25:]]
    # With a fixed size, all other options are generated differently, even for the same size.
    size = "" if generate_options(result.seed).describe() == result.options else f"--brokers {result.brokers} "
    lines.append(f"  replay: make sim SEED={result.seed} ARGS='{size}--trace'")
    lines.append(f"  without the faults that are not needed: make sim SEED={result.seed} ARGS='{size}--shrink'")
    return "\n".join(lines)


def run_campaign(
    seeds: Iterable[int], *, processes: int = PROCESSES, quiet: bool = False, brokers: int | None = None
) -> Campaign:
    """Run all seeds. Print each failure immediately, and the progress to standard error every few seconds."""
    campaign = Campaign()
    reported = campaign.started
    for result in run_range(seeds, processes=processes, brokers=brokers):
        campaign.add(result)
        if not result.passed:
            print(explain(result), flush=True)
        if not quiet and time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(campaign.progress(), file=sys.stderr, flush=True)
    return campaign
