"""What an assignor of the server is given, and what it gives back (KIP-848, Server side assignors)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Target = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions, never an empty set of them."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """`topics`: ids of what it subscribes to, each in `GroupSpec.partitions`. `target`: what it was to have until now."""

    topics: tuple[bytes, ...]
    target: Target
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`members` in the order of their ids. `homogeneous`: all of them subscribe to the same topics."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    """Topic id -> number of partitions."""
    homogeneous: bool


Assignor = Callable[[GroupSpec], dict[str, Target]]
"""The new target of each member. A target that has not changed is the same object as before."""
