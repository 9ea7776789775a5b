"""Faults of a run as data, generated from the seed. A fault can be left out without a change of the others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

KILL, RESTART, POWER, PAUSE = "kill broker", "restart broker", "power loss of broker", "pause broker"
PARTITION, SLOW_DISK = "partition brokers", "slow disk of broker"
CRASH, PAUSE_APPLICATION = "crash application", "pause application"
CRASH_AT_POINT = "crash application at point"
ISOLATE, SLOW_LINK, RESET = (
    "partition application from broker",
    "slow link between application and broker",
    "reset connections of application",
)
LOSE_RESPONSE = "lose response"
KINDS: Final = (
    KILL,
    RESTART,
    POWER,
    PAUSE,
    PARTITION,
    SLOW_DISK,
    CRASH,
    CRASH_AT_POINT,
    PAUSE_APPLICATION,
    ISOLATE,
    SLOW_LINK,
    RESET,
    LOSE_RESPONSE,
)
"""All kinds of faults."""
OF_APPLICATION: Final = frozenset({CRASH, CRASH_AT_POINT, PAUSE_APPLICATION, RESET})
APIS: Final = {
    "Produce": 0,
    "OffsetCommit": 8,
    "JoinGroup": 11,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
"""Requests whose response can be lost, with their API key."""
SECONDS: Final = {
    KILL: (0.2, 6.0),
    RESTART: (0.2, 3.0),
    POWER: (0.5, 6.0),
    PAUSE: (0.5, 8.0),
    PARTITION: (0.5, 8.0),
    SLOW_DISK: (0.1, 2.0),
    CRASH: (0.05, 4.0),
    CRASH_AT_POINT: (0.05, 4.0),
    PAUSE_APPLICATION: (0.5, 15.0),
    ISOLATE: (0.5, 12.0),
    SLOW_LINK: (1.0, 8.0),
}
"""Shortest and longest duration of each kind, in seconds of virtual time."""
POINTS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at `at` seconds of virtual time after the start of the application, for `seconds`.

    `target` is the number of a broker, or of an instance of the application for faults of that kind. `other` is the
    second broker of a partition, the instance at the other end of a link to a broker (0 stands for 1), or the number of
    the crash point. `api` names the request whose response is lost.
    """

    kind: str
    at: float
    seconds: float = 0.0
    target: int = 1
    other: int = 0
    api: str = ""

    def __str__(self) -> str:
        duration = f" for {self.seconds:.3f} s" if self.seconds else ""
        if self.kind == LOSE_RESPONSE:
            return f"{self.at:.3f} s: lose the response of {self.api} to instance {self.target}"
        if self.kind == PARTITION:
            return f"{self.at:.3f} s: partition broker {self.target} from broker {self.other}{duration}"
        if self.kind == ISOLATE:
            return f"{self.at:.3f} s: partition instance {self.other} from broker {self.target}{duration}"
        if self.kind == SLOW_LINK:
            return (
                f"{self.at:.3f} s: slow link between instance {max(self.other, 1)} and broker {self.target}{duration}"
            )
        if self.kind == CRASH_AT_POINT:
            return f"{self.at:.3f} s: crash instance {self.target} at crash point {self.other} from then{duration}"
        return f"{self.at:.3f} s: {self.kind} {self.target}{duration}"

    def check(self, *, brokers: int, instances: int) -> None:
        """Raise ValueError if a time is below 0, or if the kind, the API, a broker or an instance does not exist."""
        if self.kind not in KINDS:
            raise ValueError(f"fault kind {self.kind!r} does not exist; use one of {', '.join(KINDS)}")
        for name, seconds in {"at": self.at, "seconds": self.seconds}.items():
            if not 0 <= seconds < math.inf:
                raise ValueError(f"fault {self.kind!r}: {name}={seconds!r}; use a number of seconds from 0 on")
        if self.kind == LOSE_RESPONSE and self.api not in APIS:
            raise ValueError(f"{self}: the API is not supported; use one of {', '.join(APIS)}")
        of_application = self.kind in OF_APPLICATION or self.kind == LOSE_RESPONSE
        named = [(self.target, instances if of_application else brokers)]
        if self.kind == PARTITION:
            named.append((self.other, brokers))
        if self.kind in {ISOLATE, SLOW_LINK}:
            named.append((max(self.other, 1), instances))
        for number, last in named:
            if not 1 <= number <= last:
                raise ValueError(f"{self}: number {number} does not exist; use 1 to {last}")


@dataclass(frozen=True, slots=True)
class Faults:
    """Number and kinds of the faults that are generated for each seed."""

    kinds: Sequence[str] = KINDS
    at_least: int = 2
    at_most: int = 9
    seconds: float = 20.0
    """Seconds of virtual time after the start of the application in which faults begin."""

    def __post_init__(self) -> None:
        if isinstance(self.kinds, str) or (unknown := [kind for kind in self.kinds if kind not in KINDS]):
            named = self.kinds if isinstance(self.kinds, str) else unknown[0]
            raise ValueError(f"kinds: {named!r} is no list of kinds of faults; use some of {', '.join(KINDS)}")
        if not 0 <= self.at_least <= self.at_most:
            numbers = f"at_least={self.at_least!r}, at_most={self.at_most!r}"
            raise ValueError(f"{numbers}: use numbers from 0 on, the smaller one first")
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds={self.seconds!r}: use a number of seconds from 0 on")

    def generate(self, seed: int, *, brokers: int, instances: int) -> list[Fault]:
        """Return the faults of a seed in the order of time. With all kinds, most concern the application."""
        rng = Random(f"faults {seed}")
        kinds = [kind for kind in self.kinds if brokers > 1 or kind != PARTITION]
        if not kinds:
            return []
        near = [kind for kind in kinds if kind in OF_APPLICATION or kind == LOSE_RESPONSE] or kinds
        faults = []
        for _ in range(rng.randint(self.at_least, self.at_most)):
            kind = rng.choice(near if rng.random() < 0.5 else kinds)
            shortest, longest = SECONDS.get(kind, (0.0, 0.0))
            target = rng.randint(1, instances if kind in OF_APPLICATION or kind == LOSE_RESPONSE else brokers)
            other = 0
            if kind == PARTITION:
                other = rng.choice([number for number in range(1, brokers + 1) if number != target])
            elif kind == ISOLATE or (kind == SLOW_LINK and instances > 1):
                other = rng.randint(1, instances)
            elif kind == CRASH_AT_POINT:
                other = rng.randint(1, POINTS_MAX)
            # The square makes early times likelier: many applications have most of their work at the start.
            at = round(rng.random() ** 2 * self.seconds, 6)
            seconds = round(shortest + rng.random() * (longest - shortest), 6)
            api = rng.choice(list(APIS)) if kind == LOSE_RESPONSE else ""
            faults.append(Fault(kind, at, seconds, target, other, api))
        return sorted(faults, key=lambda fault: fault.at)
