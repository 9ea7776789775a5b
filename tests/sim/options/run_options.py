"""Options of a run, generated from the seed before it begins.

Each seed has its own mix of faults and sizes (swarm testing).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.sim.faults.fault import (
    ADD,
    DAYS,
    END,
    FRAME_KINDS,
    INIT,
    PRODUCE,
    ROLES,
    SLOW_METADATA_THREAD,
    SLOW_THREADS,
    Fault,
    in_order,
    soon_enough,
)
from tests.sim.faults.small_limits import (
    generate_controller_slices,
    generate_limits,
    generate_log_tail,
    generate_producers,
    generate_recovery_starts,
)
from tests.sim.options.batch_options import BatchOptions, generate_batches
from tests.sim.options.cluster_options import OPERATIONS_EXPECTED, generate_cluster
from tests.sim.options.compaction_options import CompactionOptions, generate_compaction
from tests.sim.options.damage_options import generate_damage
from tests.sim.options.disk_options import generate_disk_faults
from tests.sim.options.group_options import GroupOptions, generate_groups
from tests.sim.options.hostile_options import HostileOptions, generate_hostile
from tests.sim.options.outage_options import generate_outages
from tests.sim.options.read_options import generate_read_errors
from tests.sim.options.scenario_options import generate_scenario
from tests.sim.options.security_options import SecurityOptions, generate_security

KILL, FLUSH, LOOSE = "process kills only", "flush before acknowledge", "power cuts without flushing"
DEFAULT_ID_EXPIRATION_MS: Final = 7 * 24 * 3600 * 1000
FAULTS_BELOW: Final = 540
"""Bound of the operation at which a fault is due. A run has about 900 operations."""
OPERATIONS_CERTAIN: Final = 300
"""Operations that every run reaches."""
FAULTS_MIN, FAULTS_MAX = 6, 11
FAULTS_CERTAIN: Final = 5
"""Number of faults that are due within OPERATIONS_CERTAIN."""
OPERATIONS_MIN: Final = 500
TRANSACTIONS_MIN: Final = 104
SLOW_THREADS_PROBABILITY: Final = 0.2
"""Part of the runs in which slow operations occupy the shared threads of a disk."""
SLOW_METADATA_THREAD_PROBABILITY: Final = 0.1
"""Part of the runs in which slow operations occupy the thread of the metadata log."""
DAYS_PROBABILITY: Final = 0.2
"""Part of the runs in which wall clocks jump by DAYS_MS."""
DAYS_MS: Final = 8 * 24 * 3600 * 1000
"""A jump beyond all default times of retention and expiration, in milliseconds."""
RETENTION_CHECK_MS: Final = 200
TV2: Final = 2
OWNERS_PROBABILITY: Final = 0.25
"""Part of the runs with owners of two-phase commits, if the cluster has TV2 and loses no committed records."""
OWNERS_DAYS_PROBABILITY: Final = 0.5
OVERFLOW_EPOCH_FIRST, OVERFLOW_EPOCH_LAST = 32_755, 32_765
BROKERS: Final = ((1, 3, 5), (35, 45, 20))
"""Sizes of clusters and their weights."""


@dataclass
class Options:
    """Options of one run. `durability` names the guarantee that the run is checked against."""

    seed: int
    partitions: int
    durability: str
    segment_bytes: int
    index_interval_bytes: int
    transaction_partitions: int
    transaction_timeout_ms: int
    scan_interval_ms: int
    tv2_producers: int
    classic_producers: int
    idempotent: int
    zombie_pairs: int
    transactions: int
    rounds_max: int
    padding_max: int
    overtime: float
    think_seconds: float
    reader_think_seconds: float
    latency_seconds_max: float
    slow_probability: float
    sync_seconds_max: float
    cold_probability: float
    overflow: bool
    transaction_version: int
    id_expiration_ms: int
    limits: dict[str, int]
    faults: list[Fault] = field(default_factory=list)
    brokers: int = 1
    voters: int = 1
    replication: int = 1
    min_in_sync: int = 1
    election_timeout_ms: int = 1000
    session_timeout_ms: int = 9000
    replica_lag_ms: int = 30_000
    snapshot_bytes: int = 20 << 20
    """metadata.log.max.record.bytes.between.snapshots: a new snapshot removes the log before the previous one."""
    retention_check_ms: int = 0
    """log.retention.check.interval.ms; 0: the default."""
    clock_drifts: tuple[float, ...] = ()
    leave_behind: str = ""
    """State of one broker after the faults: empty (running), `dead` (stopped), or `cut` (isolated)."""
    groups: GroupOptions | None = None
    compaction: CompactionOptions | None = None
    hostile: HostileOptions | None = None
    batches: BatchOptions | None = None
    security: SecurityOptions | None = None
    owners: int = 0
    """Owners of two-phase commits (KIP-939)."""
    producer_expiration_ms: int = 0
    """producer.id.expiration.ms; 0: the default, which no run reaches."""

    @property
    def flush(self) -> bool:
        return self.durability == FLUSH

    @property
    def ids_expire(self) -> bool:
        return self.id_expiration_ms < DEFAULT_ID_EXPIRATION_MS

    @property
    def lossy(self) -> bool:
        return self.durability == LOOSE

    def describe(self) -> str:
        size = f"{self.brokers} brokers ({self.voters} voters), RF {self.replication}; " if self.brokers > 1 else ""
        return (
            f"{size}{self.durability}; transaction.version {self.transaction_version}; "
            f"{self.partitions} partitions, segments of {self.segment_bytes} B, "
            f"{self.tv2_producers} TV2 + {self.classic_producers} classic + "
            f"{self.idempotent} idempotent producers, {self.zombie_pairs} zombie pairs, "
            f"overflow {'on' if self.overflow else 'off'}, "
            f"{'' if self.groups is None else self.groups.describe() + ', '}"
            f"{'' if self.compaction is None else self.compaction.describe() + ', '}"
            f"{'' if self.hostile is None else self.hostile.describe() + ', '}"
            f"{'' if self.security is None else self.security.describe() + ', '}"
            f"{f'{self.owners} owners of two-phase commits, ' if self.owners else ''}"
            f"{'producers expire, ' if self.producer_expiration_ms else ''}"
            f"{'' if self.batches is None else self.batches.describe() + ', '}"
            f"faults: {', '.join(fault.kind for fault in self.faults)}"
        )


def generate_options(
    seed: int,
    *,
    durability: str | None = None,
    brokers: int | None = None,
    pairs: bool = False,
    groups: bool | None = None,
    hostile: bool | None = None,
    shared_listener: bool | None = None,
    damage: bool | None = None,
    owners: bool | None = None,
    outages: bool = False,
    scenario: str = "",
    disk_faults: bool | None = None,
    security: bool | None = None,
    read_errors: Sequence[str] = (),
) -> Options:
    """Return the options of a seed.

    A test may fix the size, the durability (and with it the kinds of faults), and the use of groups. It may also fix
    the presence of a hostile client, its use of the listener of the brokers, damage of logs, failures of disks, and the
    use of SASL and ACLs.
    Only runs of some tests have outages, scenarios, and failed reads of the files `read_errors`. A run with a scenario
    has no other faults.
    """
    cluster_rng = Random(seed * 104_729 + 5)
    sampled = cluster_rng.choices(*BROKERS)[0] if brokers is None else brokers
    options = _generate_single(seed, durability)
    if sampled > 1:
        generate_cluster(cluster_rng, options, sampled, pairs=pairs, durability=durability)
    else:
        _generate_days(options)
    generate_groups(options, wanted=groups)
    generate_compaction(options)
    generate_hostile(options, wanted=hostile, shared=shared_listener)
    generate_damage(options, wanted=damage)
    generate_batches(options)
    _generate_owners(options, wanted=owners)
    generate_security(options, wanted=security)
    if outages:
        generate_outages(options)
    if read_errors:
        generate_read_errors(options, read_errors)
    slow_threads = _generate_slow_threads(options, SLOW_THREADS, 11, SLOW_THREADS_PROBABILITY)
    slow_metadata = _generate_slow_threads(options, SLOW_METADATA_THREAD, 23, SLOW_METADATA_THREAD_PROBABILITY)
    options.faults = in_order([*options.faults, *slow_threads, *slow_metadata])
    if scenario:
        generate_scenario(options, scenario)
    else:
        generate_disk_faults(options, wanted=disk_faults)
    options.limits |= generate_log_tail(Random(seed * 49_979_687 + 3))
    options.limits |= generate_controller_slices(Random(seed * 49_979_687 + 7))
    options.limits |= generate_recovery_starts(Random(seed * 49_979_687 + 11))
    if options.producer_expiration_ms:
        options.limits |= generate_producers(Random(seed * 49_979_687 + 29))
    return options


def _generate_slow_threads(options: Options, kind: str, generator: int, probability: float) -> list[Fault]:
    """Return faults of slow threads. Each kind has a generator of its own, so that other generated values stay."""
    rng = Random(options.seed * 49_979_687 + generator)
    if rng.random() >= probability:
        return []
    below = FAULTS_BELOW if options.brokers == 1 else OPERATIONS_EXPECTED
    return [
        Fault(
            kind,
            rng.randrange(20, below),
            rng.randrange(400),
            seconds=rng.choice((0.3, 1.0, 4.0)) * (0.2 + rng.random()),
            target=rng.choice(ROLES),
            number=rng.randrange(64),
        )
        for _ in range(rng.randint(1, 3))
    ]


def _generate_owners(options: Options, *, wanted: bool | None) -> None:
    """Add owners of two-phase commits to part of the runs. With one broker, days may pass while they are away.

    They have a generator of their own, so that other generated values stay.
    """
    rng = Random(options.seed * 49_979_687 + 17)
    if wanted:
        options.transaction_version = TV2
    chosen = rng.random() < OWNERS_PROBABILITY if wanted is None else wanted
    if not chosen or options.lossy or options.transaction_version < TV2:
        return
    options.owners = rng.randint(1, 2)
    if options.brokers == 1 and rng.random() < OWNERS_DAYS_PROBABILITY:
        jump = Fault(DAYS, rng.randrange(20, OPERATIONS_CERTAIN), rng.randrange(400), number=DAYS_MS)
        options.faults = in_order([*options.faults, jump])


def _generate_days(options: Options) -> None:
    """Let the wall clock of the broker jump by days in part of the runs, with frequent checks of retention.

    No record is that old. Clusters have no such jumps: a transaction that a coordinator begins 8 days ahead would not
    exceed its time-out at the next coordinator.
    """
    rng = Random(options.seed * 49_979_687 + 13)
    if rng.random() >= DAYS_PROBABILITY:
        return
    options.retention_check_ms = RETENTION_CHECK_MS
    jumps = [
        Fault(DAYS, rng.randrange(20, OPERATIONS_CERTAIN), rng.randrange(400), number=DAYS_MS)
        for _ in range(rng.randint(1, 2))
    ]
    options.faults = in_order([*options.faults, *jumps])


def _generate_single(seed: int, durability: str | None) -> Options:
    rng = Random(seed * 7919 + 17)
    sampled = rng.choices((KILL, FLUSH, LOOSE), (55, 37, 8))[0]
    options = Options(
        seed=seed,
        partitions=rng.randint(2, 4),
        durability=sampled if durability is None else durability,
        segment_bytes=rng.choice((600, 1500, 4000, 16_000, 1 << 20)),
        index_interval_bytes=rng.choice((1, 200, 4096)),
        transaction_partitions=rng.choice((1, 2, 3)),
        transaction_timeout_ms=rng.choice((400, 1000, 2500)),
        scan_interval_ms=rng.choice((50, 200, 500)),
        tv2_producers=rng.randint(2, 3),
        classic_producers=rng.randint(1, 3),
        idempotent=rng.randint(1, 2),
        zombie_pairs=rng.choice((0, 1, 1, 2)),
        transactions=TRANSACTIONS_MIN + rng.randint(0, 12),
        rounds_max=rng.choice((1, 2, 3)),
        padding_max=rng.choice((30, 300, 900)),
        overtime=rng.choice((0.02, 0.06, 0.15)),
        think_seconds=rng.choice((0.002, 0.02, 0.1)),
        reader_think_seconds=rng.choice((0.05, 0.2, 0.4)),
        latency_seconds_max=rng.choice((0.0005, 0.003, 0.02)),
        slow_probability=rng.choice((0.0, 0.01, 0.05)),
        sync_seconds_max=rng.choice((0.0005, 0.004, 0.02)),
        cold_probability=rng.choice((0.0, 0.05, 0.5)),
        overflow=rng.random() < 0.35,
        transaction_version=rng.choices((2, 1, 0), (80, 10, 10))[0],
        id_expiration_ms=rng.choices((DEFAULT_ID_EXPIRATION_MS, 1500), (85, 15))[0],
        limits=generate_limits(rng),
    )
    options.padding_max = min(options.padding_max, options.segment_bytes // 5)
    options.faults = _generate_faults(rng, options)
    return options


def _generate_faults(rng: Random, options: Options) -> list[Fault]:
    kinds = [
        "kill",
        "die_at_disk",
        *(kind for kind in FRAME_KINDS if kind != "replay_request"),
        "hold_request",
        "lose_response",
        "cut_all",
        "cut_one",
        "lag",
        "lag",
        "leadership",
        "clock",
        "restart",
        "stall",
    ]
    if options.durability != KILL:
        kinds += ["power", "power", "power_at_disk"]
    disabled = rng.sample(sorted(set(kinds)), rng.randint(0, 4))
    enabled = [kind for kind in kinds if kind not in disabled] or kinds
    faults = [_generate_fault(rng, rng.choice(enabled)) for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX))]
    if not any(fault.kind in {"kill", "power", "die_at_disk", "power_at_disk"} for fault in faults):
        faults[0] = _generate_fault(
            rng, rng.choice(("kill", "die_at_disk") if options.durability == KILL else ("power", "power_at_disk"))
        )
    if rng.random() < 0.25:
        faults.append(
            _generate_fault(rng, rng.choice(("disk_write", "disk_sync") if options.flush else ("disk_write",)))
        )
    return soon_enough(faults, FAULTS_CERTAIN, by=OPERATIONS_CERTAIN, generated_below=FAULTS_BELOW)


def _generate_fault(rng: Random, kind: str) -> Fault:
    operations, steps = rng.randrange(20, FAULTS_BELOW), rng.randrange(400)
    if kind in FRAME_KINDS:
        return Fault(
            kind,
            operations,
            steps,
            api_key=rng.choice((PRODUCE, PRODUCE, INIT, ADD, END, END, END)),
            seconds=rng.choice((0.02, 0.3, 2.0)) * rng.random(),
        )
    if kind in {"die_at_disk", "power_at_disk"}:
        return Fault(kind, operations, steps, number=rng.randrange(1, 25), seconds=rng.random() * 0.5)
    if kind in {"kill", "power"}:
        # Some nodes fail again while they recover.
        return Fault(
            kind,
            operations,
            steps,
            number=rng.choice((0, 0, rng.randrange(1, 60))),
            seconds=rng.random() * rng.choice((0.05, 1.0)),
        )
    if kind == "lag":
        return Fault(
            kind,
            operations,
            steps,
            seconds=rng.choice((0.05, 0.5, 1.5)),
            target=rng.choice(("data", "data", "coordinator")),
            number=rng.randrange(64),
        )
    if kind == "clock":
        return Fault(kind, operations, steps, number=rng.choice((-60_000, -5_000, -700, 700, 5_000, 60_000)))
    if kind in {"disk_write", "disk_sync"}:
        return Fault(
            kind,
            operations,
            steps,
            number=rng.choice((5, 28)),
            seconds=0.1 + rng.random(),
            target=rng.choice(("data", "data", "coordinator")),
        )
    return Fault(kind, operations, steps, seconds=rng.random() * rng.choice((0.05, 0.5)))
