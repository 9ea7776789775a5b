"""What will go wrong, drawn from a seed before the run begins: bursts of faults with pauses between, a quarter of them empty."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

FREE_SECONDS: Final = 5.0
"""At the start nothing goes wrong, so that every client has begun."""
QUIET_SHARE: Final = 0.25
BURST_SECONDS: Final = (20.0, 30.0)
FAULTS_MAX: Final = 4
PAUSE_SECONDS: Final = (0.1, 8.0)

PRODUCE, FETCH, ADD_PARTITIONS, END_TXN, WRITE_MARKERS, INIT = 0, 1, 24, 26, 27, 22
ALTER_PARTITION, HEARTBEAT = 56, 63

PROCESS_FAULTS: Final = ("kill", "kill", "kill", "pause", "pause", "restart", "storm", "rolling", "kill_two")
LINK_FAULTS: Final = ("cut", "one_way", "isolate", "isolate", "clients_cut", "stall", "reset")
FRAME_FAULTS: Final = ("hold", "hold", "lose", "lose", "half")
CLIENT_FAULTS: Final = ("client_kill", "client_pause", "client_rival")
MEMBER_FAULTS: Final = ("member_kill", "member_pause", "member_pause", "member_leave", "member_join")
"""What befalls the members of groups; a pause is longer than a session, if the burst is."""
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, MEMBER_HEARTBEAT, SYNC_GROUP = 8, 9, 11, 12, 14
ADD_OFFSETS, TXN_OFFSET_COMMIT, CONSUMER_GROUP_HEARTBEAT = 25, 28, 68
GROUP_KEYS: Final = (
    (OFFSET_COMMIT,),
    (OFFSET_FETCH,),
    (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT),
    (SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT),
    (MEMBER_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT),
    (ADD_OFFSETS, TXN_OFFSET_COMMIT),
    (TXN_OFFSET_COMMIT,),
)
OF_A_GROUP: Final = ("kill_two", "cut", "one_way", "isolate")
"""Faults that need other brokers."""


@dataclass(frozen=True)
class Fault:
    """`at` and `seconds` from the start of the run. `node` and `other` are node ids; 0 stands for the clients. Negative: whoever leads or coordinates then."""

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
    begin: float
    end: float
    faults: tuple[Fault, ...]


def draw(seed: int, seconds: float, brokers: int, *, burst_seconds: tuple[float, float] = BURST_SECONDS) -> list[Burst]:
    """Bursts one after the other. Every fault of a burst is over when the burst is."""
    rng = Random(f"chaos {seed}")
    of_groups = Random(f"chaos groups {seed}")
    bursts: list[Burst] = []
    at = FREE_SECONDS
    while at + burst_seconds[0] <= seconds:
        end = min(seconds, at + rng.uniform(*burst_seconds))
        # Neither the first burst is empty nor all of a short run.
        quiet = bool(bursts) and rng.random() < QUIET_SHARE
        faults = (
            [] if quiet else [*_draw_faults(rng, at, end, brokers), *_draw_group_faults(of_groups, at, end, brokers)]
        )
        bursts.append(Burst(at, end, tuple(sorted(faults, key=lambda fault: fault.at))))
        at = end
    return bursts


def _draw_faults(rng: Random, begin: float, end: float, brokers: int) -> list[Fault]:
    """A random subset of the menu, at least one fault of the processes in most bursts. One fault of the processes at a time."""
    menu: list[str] = []
    if rng.random() < 0.8:
        menu.append(rng.choice(PROCESS_FAULTS))
    if rng.random() < 0.7:
        menu.append(rng.choice(LINK_FAULTS))
    if rng.random() < 0.7:
        menu += [rng.choice(FRAME_FAULTS) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.3:
        menu.append(rng.choice(CLIENT_FAULTS))
    if not menu:
        menu.append("kill")
    width = end - begin
    faults = []
    for kind in menu:
        if kind in OF_A_GROUP and brokers < 3:
            continue
        start = begin + rng.uniform(0.0, width * 0.5)
        faults.append(_fault(rng, kind, start, width * 0.4, brokers))
    return sorted(faults, key=lambda fault: fault.at)


def _draw_group_faults(rng: Random, begin: float, end: float, brokers: int) -> list[Fault]:
    """One or two faults of members, and up to two of the frames that groups and their offsets live by."""
    width = end - begin
    faults = []
    for kind in rng.sample(MEMBER_FAULTS, rng.randint(1, 2)):
        at = begin + rng.uniform(0.0, width * 0.25)
        longest = min(width * 0.7, PAUSE_SECONDS[1])
        low = {"member_pause": 0.6, "member_join": 0.6}.get(kind, 0.0)
        faults.append(Fault(at, kind, longest * rng.uniform(low, 1.0), number=rng.getrandbits(30)))
    for _ in range(rng.randint(0, 2)):
        at = begin + rng.uniform(0.0, width * 0.5)
        seconds = min(width * 0.4, PAUSE_SECONDS[1] * rng.random())
        node = rng.randint(1, brokers)
        faults.append(Fault(at, rng.choice(("hold", "lose", "half")), seconds, node, 0, rng.choice(GROUP_KEYS)))
    return faults


def _fault(rng: Random, kind: str, at: float, longest: float, brokers: int) -> Fault:
    node = rng.randint(1, brokers)
    others = [each for each in range(1, brokers + 1) if each != node]
    other = rng.choice(others) if others and rng.random() < 0.7 else 0
    number = rng.getrandbits(30)
    low, high = PAUSE_SECONDS
    # Most pauses are shorter than any time-out; a cut has to last until somebody acts on it, and then a while.
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
    if kind in {"cut", "one_way"} and others:
        return Fault(at, kind, seconds, node, rng.choice(others), (), number)
    return Fault(at, kind, seconds, node, other, (), number)
