"""Fault plan of a run, generated from the seed before the run: bursts of faults. A quarter of the bursts is empty."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

FAULT_FREE_SECONDS: Final = 5.0
"""Time without faults at the start, in seconds. All clients have connected at its end."""
EMPTY_BURST_SHARE: Final = 0.25
BURST_SECONDS: Final = (20.0, 30.0)
"""Minimum and maximum duration of a burst, in seconds."""
FAULT_SECONDS: Final = (0.1, 8.0)
"""Minimum and maximum duration of a fault, in seconds."""

PRODUCE, FETCH, ADD_PARTITIONS, END_TXN, WRITE_MARKERS, INIT = 0, 1, 24, 26, 27, 22
ALTER_PARTITION, HEARTBEAT = 56, 63

PROCESS_FAULTS: Final = ("kill", "kill", "kill", "pause", "pause", "restart", "repeated_kill", "rolling", "kill_two")
LINK_FAULTS: Final = ("disconnect", "one_way", "isolate", "isolate", "disconnect_clients", "stall", "reset")
FRAME_FAULTS: Final = ("hold_request", "hold_request", "lose_response", "lose_response", "half_frame")
CLIENT_FAULTS: Final = ("client_kill", "client_pause", "client_duplicate")
MEMBER_FAULTS: Final = ("member_kill", "member_pause", "member_pause", "member_leave", "member_join")
"""Faults of group members. A pause is longer than the session time-out if the burst is long enough."""
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, MEMBER_HEARTBEAT, SYNC_GROUP = 8, 9, 11, 12, 14
ADD_OFFSETS, TXN_OFFSET_COMMIT, CONSUMER_GROUP_HEARTBEAT = 25, 28, 68
GROUP_API_KEYS: Final = (
    (OFFSET_COMMIT,),
    (OFFSET_FETCH,),
    (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT),
    (SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT),
    (MEMBER_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT),
    (ADD_OFFSETS, TXN_OFFSET_COMMIT),
    (TXN_OFFSET_COMMIT,),
)
CLUSTER_FAULTS: Final = ("kill_two", "disconnect", "one_way", "isolate")
"""Faults that need at least three brokers."""


@dataclass(frozen=True)
class Fault:
    """One planned fault. `at` is its time since the start of the run, `seconds` its duration.

    `node` and `other` are node ids; 0 stands for the clients. `api_keys` are the requests that a frame fault applies
    to.
    """

    at: float
    kind: str
    seconds: float = 0.0
    node: int = 0
    other: int = 0
    api_keys: tuple[int, ...] = ()
    number: int = 0

    def details(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (0, (), 0.0)}


@dataclass(frozen=True)
class Burst:
    """Faults of one time span. `begin` and `end` are in seconds since the start of the run."""

    begin: float
    end: float
    faults: tuple[Fault, ...]


def generate(
    seed: int, seconds: float, brokers: int, *, burst_seconds: tuple[float, float] = BURST_SECONDS
) -> list[Burst]:
    """Generate consecutive bursts. Each fault ends within its burst."""
    rng = Random(f"chaos {seed}")
    group_rng = Random(f"chaos groups {seed}")
    bursts: list[Burst] = []
    at = FAULT_FREE_SECONDS
    while at + burst_seconds[0] <= seconds:
        end = min(seconds, at + rng.uniform(*burst_seconds))
        is_empty = bool(bursts) and rng.random() < EMPTY_BURST_SHARE  # a short run has at least one burst with faults
        faults = [] if is_empty else _broker_faults(rng, at, end, brokers)
        faults += [] if is_empty else _group_faults(group_rng, at, end, brokers)
        bursts.append(Burst(at, end, tuple(sorted(faults, key=lambda fault: fault.at))))
        at = end
    return bursts


def _broker_faults(rng: Random, begin: float, end: float, brokers: int) -> list[Fault]:
    """Generate the faults of brokers, links, frames and producers in one burst, with at most one process fault."""
    kinds: list[str] = []
    if rng.random() < 0.8:
        kinds.append(rng.choice(PROCESS_FAULTS))
    if rng.random() < 0.7:
        kinds.append(rng.choice(LINK_FAULTS))
    if rng.random() < 0.7:
        kinds += [rng.choice(FRAME_FAULTS) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.3:
        kinds.append(rng.choice(CLIENT_FAULTS))
    if not kinds:
        kinds.append("kill")
    width = end - begin
    faults = []
    for kind in kinds:
        if kind in CLUSTER_FAULTS and brokers < 3:
            continue
        start = begin + rng.uniform(0.0, width * 0.5)
        faults.append(_fault(rng, kind, start, width * 0.4, brokers))
    return sorted(faults, key=lambda fault: fault.at)


def _group_faults(rng: Random, begin: float, end: float, brokers: int) -> list[Fault]:
    """Generate one or two faults of members, and up to two faults of frames of the group protocols."""
    width = end - begin
    faults = []
    for kind in rng.sample(MEMBER_FAULTS, rng.randint(1, 2)):
        at = begin + rng.uniform(0.0, width * 0.25)
        longest = min(width * 0.7, FAULT_SECONDS[1])
        low = {"member_pause": 0.6, "member_join": 0.6}.get(kind, 0.0)
        faults.append(Fault(at, kind, longest * rng.uniform(low, 1.0), number=rng.getrandbits(30)))
    for _ in range(rng.randint(0, 2)):
        at = begin + rng.uniform(0.0, width * 0.5)
        seconds = min(width * 0.4, FAULT_SECONDS[1] * rng.random())
        node = rng.randint(1, brokers)
        faults.append(
            Fault(
                at,
                rng.choice(("hold_request", "lose_response", "half_frame")),
                seconds,
                node,
                0,
                rng.choice(GROUP_API_KEYS),
            )
        )
    return faults


def _fault(rng: Random, kind: str, at: float, longest: float, brokers: int) -> Fault:
    node = rng.randint(1, brokers)
    others = [broker for broker in range(1, brokers + 1) if broker != node]
    other = rng.choice(others) if others and rng.random() < 0.7 else 0
    number = rng.getrandbits(30)
    low, high = FAULT_SECONDS
    # Most pauses are shorter than any time-out. A network partition is longer: it outlasts session and fetch time-outs.
    share = rng.random() if kind in LINK_FAULTS else rng.random() ** 2
    seconds = min(longest, low + (high - low) * share)
    if kind in FRAME_FAULTS:
        between = ((WRITE_MARKERS,), (FETCH,), (ALTER_PARTITION,), (HEARTBEAT,))
        outside = ((END_TXN,), (ADD_PARTITIONS,), (PRODUCE,), (INIT,), (END_TXN, PRODUCE))
        source = other if rng.random() < 0.35 else 0
        keys = rng.choice(between if source else outside)
        return Fault(at, kind, seconds, node, source, keys, number)
    if kind == "kill_two" and others:
        return Fault(at, kind, seconds, node, rng.choice(others), (), number)
    if kind in {"disconnect", "one_way"} and others:
        return Fault(at, kind, seconds, node, rng.choice(others), (), number)
    return Fault(at, kind, seconds, node, other, (), number)
