"""Options of runs with several brokers: sizes, roles, time-outs, and faults of processes, links, disks and
administrators.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import (
    ADD,
    ALTER_PARTITION,
    ANY,
    CONTROLLER,
    COORDINATOR,
    END,
    FETCH,
    FRAME_KINDS,
    INIT,
    LEADER,
    MARKERS,
    PRODUCE,
    ROLES,
    Fault,
    soon_enough,
)

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

KILL, FLUSH, ONE_LOSES = (
    "process kills only",
    "flush before acknowledge",
    "one broker at a time may lose un-synced data",
)
OPERATIONS_EXPECTED: Final = 260
OPERATIONS_CERTAIN: Final = 140
"""Operations that every run reaches. Some runs end long before the expected number."""
FAULTS_MIN, FAULTS_MAX = 4, 10
FAULTS_CERTAIN: Final = 3
"""Number of faults that are due within OPERATIONS_CERTAIN."""
TRANSACTIONS_MIN: Final = 26

PAIR_PROBABILITY: Final = 0.25
PAIRS: Final = ("late marker", "late change of the ISR", "elections in a row", "lagging follower")

KINDS: Final = (
    "kill", "kill", "die_at_disk", "pause", "pause", "restart", "rolling", "storm", "cut", "cut", "cut_from_clients",
    "slow", "datagrams", "frame", "frame", "frame", "cut_all", "reset", "clock", "move_leader", "reassign",
    "delete_topic",
)  # fmt: skip
POWER_KINDS: Final = ("power", "power", "power_at_disk")
WIPE_KIND: Final = "wipe"
DISK_KIND: Final = "disk_write"
BETWEEN_BROKERS: Final = (MARKERS, MARKERS, ADD, FETCH, ALTER_PARTITION)
FROM_CLIENTS: Final = (PRODUCE, PRODUCE, INIT, ADD, END, END)


def generate_cluster(
    rng: Random, options: "Options", brokers: int, *, pairs: bool, durability: str | None = None
) -> None:
    """Replace the options of one broker by those of several. With `pairs`, the faults include a dangerous pair."""
    options.brokers = brokers
    options.voters = 3 if brokers == 5 and rng.random() < 0.6 else brokers
    options.replication = rng.choices((3, 2), (85, 15))[0]
    options.min_in_sync = 2
    sampled = rng.choices((KILL, FLUSH, ONE_LOSES), (20, 20, 60))[0]
    options.durability = sampled if durability is None else durability
    options.transaction_version = rng.choices((2, 1), (85, 15))[0]
    options.overflow = False
    options.partitions = rng.randint(2, 4)
    options.tv2_producers = rng.randint(1, 2)
    options.classic_producers = rng.choice((0, 1, 1))
    options.idempotent = 1
    options.zombie_pairs = rng.choice((0, 0, 1))
    options.transactions = TRANSACTIONS_MIN + rng.randint(0, 10)
    options.think_seconds = rng.choice((0.02, 0.1, 0.4))
    options.reader_think_seconds = rng.choice((0.1, 0.4))
    options.latency_seconds_max = rng.choice((0.0005, 0.003, 0.01))
    options.election_timeout_ms = rng.choice((250, 500, 1000))
    options.session_timeout_ms = rng.choice((800, 1500, 4000))
    options.replica_lag_ms = rng.choice((600, 1500, 4000))
    options.transaction_timeout_ms = rng.choice((1000, 2500, 5000))
    options.clock_drifts = tuple(rng.choice((0.0, 0.0, 0.01, -0.01)) for _ in range(brokers))
    options.leave_behind = rng.choice(("", "", "dead", "cut"))
    if options.replication == options.min_in_sync:
        options.leave_behind = ""  # without it, no record could be committed
    options.faults = _generate_faults(rng, options, pairs=pairs)
    options.snapshot_bytes = rng.choice((2_000, 5_000, 20_000, 20 << 20))


def _generate_faults(rng: Random, options: "Options", *, pairs: bool) -> list[Fault]:
    kinds = list(KINDS)
    if options.durability != KILL:
        kinds += POWER_KINDS
    if options.durability == ONE_LOSES and options.replication > 2:
        kinds.append(WIPE_KIND)
    if rng.random() < 0.3:
        kinds.append(DISK_KIND)
    disabled = rng.sample(sorted(set(kinds)), rng.randint(0, len(set(kinds)) // 2))
    enabled = [kind for kind in kinds if kind not in disabled]
    faults = [_generate_fault(rng, rng.choice(enabled)) for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX))]
    if rng.random() < (1.0 if pairs else PAIR_PROBABILITY):
        faults += _generate_pair(rng, options)
    return soon_enough(faults, FAULTS_CERTAIN, by=OPERATIONS_CERTAIN, generated_below=OPERATIONS_EXPECTED)


def _generate_pair(rng: Random, options: "Options") -> list[Fault]:
    """Return faults that are dangerous in combination.

    A frame is delayed until its sender has been deposed, the controller fails several times, or one link is slow.
    """
    operations = rng.randrange(20, OPERATIONS_EXPECTED // 2)
    kind = rng.choice(PAIRS)
    number = rng.randrange(64)
    if kind == "late marker":
        options.classic_producers = 2  # under TV2, the producer epoch alone would reveal a late marker
        options.think_seconds = min(options.think_seconds, 0.1)
        held = [
            Fault(
                "hold_request", operations + turn, 0, api_key=MARKERS, seconds=1.0 + 2 * rng.random(), other="brokers"
            )
            for turn in range(5)
        ]
        return [
            *held,
            *(
                Fault("kill", operations + 6, 40 * turn, target=COORDINATOR, number=6 * number + turn, seconds=0.5)
                for turn in range(2)
            ),
        ]
    if kind == "late change of the ISR":
        return [
            Fault("hold_request", operations, 0, api_key=ALTER_PARTITION, seconds=2.0 + rng.random(), other="brokers"),
            Fault("cut", operations, 0, target=LEADER, number=number, seconds=1.5, other="one", one_way=True),
            Fault("pause", operations + 30, 0, target=LEADER, number=number, seconds=1.5),
        ]
    if kind == "elections in a row":
        return [
            Fault("storm", operations + 15 * turn, 0, target=CONTROLLER, number=number, seconds=0.3)
            for turn in range(3)
        ]
    return [Fault("slow", operations, 0, target=LEADER, number=2 + 3 * number, seconds=6.0, other="one", one_way=True)]


def _generate_fault(rng: Random, kind: str) -> Fault:
    due = (rng.randrange(10, OPERATIONS_EXPECTED), rng.randrange(1000))
    target = rng.choice(ROLES)
    number = rng.randrange(64)
    if kind == "frame":
        return _generate_frame_fault(rng, due)
    if kind in {"cut", "slow", "datagrams"}:
        other = rng.choice(("all", "all", "one", "clients")) if kind == "slow" else rng.choice(("all", "all", "one"))
        seconds = rng.choice((0.3, 1.5, 5.0)) * (0.2 + rng.random())
        return Fault(kind, *due, target=target, number=number, seconds=seconds, other=other, one_way=rng.random() < 0.4)
    if kind == "pause":
        return Fault(
            kind, *due, target=target, number=number, seconds=rng.choice((0.2, 1.5, 6.0)) * (0.2 + rng.random())
        )
    if kind in {"die_at_disk", "power_at_disk"}:
        return Fault(kind, *due, target=target, number=rng.randrange(1, 25), seconds=rng.random() * 1.5)
    if kind == "clock":
        jump = rng.choice((-60_000, -5_000, -700, 700, 5_000, 60_000))
        return Fault(kind, *due, target=ANY, number=number, seconds=jump / 1000)
    if kind == DISK_KIND:
        return Fault(kind, *due, target=rng.choice((LEADER, COORDINATOR)), number=number, seconds=0.5 + rng.random())
    return Fault(kind, *due, target=target, number=number, seconds=rng.random() * rng.choice((0.1, 1.0, 4.0)))


def _generate_frame_fault(rng: Random, due: tuple[int, int]) -> Fault:
    kind = rng.choice(FRAME_KINDS)
    between_brokers = rng.random() < 0.5
    api_key = rng.choice(BETWEEN_BROKERS if between_brokers else FROM_CLIENTS)
    if kind == "replay_request" and api_key == PRODUCE:
        api_key = END  # a replayed batch of a plain producer is a legal duplicate
    seconds = rng.choice((0.05, 0.5, 3.0)) * rng.random()
    return Fault(kind, *due, api_key=api_key, seconds=seconds, other="brokers" if between_brokers else "clients")
