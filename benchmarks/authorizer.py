"""python -m benchmarks.authorizer: time of one decision with 10,000 ACLs. Exit code 1 if a target was missed.

The table shows the median and the slowest of several rounds. A remembered decision is one that was requested before.
"""

from __future__ import annotations

import random
import statistics
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table

from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import Principal
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ACLS: Final = 10_000
QUESTIONS: Final = 2_000
"""Different names per round."""
ROUNDS: Final = 15
NAME_CHARACTERS_MAX: Final = 200
HOST: Final = "10.0.0.1"
CLIENT: Final = Principal("User", "user-5")
TARGETS_US: Final = {"remembered": 2.0, "not remembered": 50.0}
"""Maximum microseconds of one decision."""


def name_of(rng: random.Random, length: int) -> str:
    return "".join(rng.choices("abcdef", k=length))


def authorizer() -> StandardAuthorizer:
    """Return an authorizer with random ACLs: short and long names and prefixes, 100 users, addresses and networks."""
    rng = random.Random(1)
    acls = {
        UUID(int=number): Acl(
            ResourceType.TOPIC,
            name_of(rng, rng.randint(1, NAME_CHARACTERS_MAX)),
            rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            f"User:user-{rng.randrange(100)}",
            rng.choice(["*", HOST, "10.0.0.0/8"]),
            rng.choice([AclOperation.READ, AclOperation.WRITE]),
            rng.choice([Permission.ALLOW, Permission.DENY]),
        )
        for number in range(ACLS)
    }
    made = StandardAuthorizer()
    image = MetadataImage(offset=1, acls=acls)
    made.on_metadata(MetadataDelta.from_nothing(image), image)
    return made


def microseconds(call: Callable[[Sequence[str]], object], names: Sequence[str]) -> float:
    """Return the time per name of one call for each of `names`."""
    began = perf_counter()
    for name in names:
        call((name,))
    return (perf_counter() - began) * 1e6 / len(names)


def main() -> int:
    made = authorizer()
    rng = random.Random(2)
    times: dict[str, list[float]] = {name: [] for name in TARGETS_US}

    def decide(names: Sequence[str]) -> object:
        return made.authorize(CLIENT, HOST, AclOperation.READ, ResourceType.TOPIC, names)

    for _ in range(ROUNDS):
        names = [name_of(rng, NAME_CHARACTERS_MAX) for _ in range(QUESTIONS)]
        times["not remembered"].append(microseconds(decide, names))
        times["remembered"].append(microseconds(decide, names))
    table = Table("decision", "median us", "slowest us", "target us")
    for kind, found in times.items():
        table.add_row(kind, f"{statistics.median(found):.2f}", f"{max(found):.2f}", f"{TARGETS_US[kind]:.0f}")
    Console().print(table)
    return int(any(statistics.median(found) > TARGETS_US[kind] for kind, found in times.items()))


if __name__ == "__main__":
    sys.exit(main())
