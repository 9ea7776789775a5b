"""Input and output of server-side assignors (KIP-848)."""

from collections.abc import Callable, Mapping

from odradek.frozen import frozen_dataclass

Target = Mapping[bytes, frozenset[int]]
"""Target assignment of one member: topic id -> partitions. No set of partitions is empty."""


@frozen_dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member.

    `topics` are the ids of its subscribed topics, all in `GroupSpec.partitions`. `target` is the last target.
    """

    topics: tuple[bytes, ...]
    target: Target
    instance_id: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class GroupSpec:
    """The group to assign.

    `members` are sorted by member id. `homogeneous`: all members subscribe to the same topics.
    """

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, int]
    """Topic id -> number of partitions."""
    homogeneous: bool


Assignor = Callable[[GroupSpec], dict[str, Target]]
"""Return the new target of each member. An unchanged target is the same object as before."""
