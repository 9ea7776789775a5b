"""One kind of request of the hostile tenant, what it aims at, and the errors that are due."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tests.sim.workloads.acl_changes import GROUP_DENIED, ID_DENIED, TOPIC_DENIED

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

CLUSTER_DENIED: Final = 31
UNKNOWN_TOPIC_ID: Final = 100
TOPIC, GROUP, CLUSTER, ID = (TOPIC_DENIED,), (GROUP_DENIED,), (CLUSTER_DENIED,), (ID_DENIED,)
"""Errors that are due: for topics, groups, the cluster, and transactional ids."""
BY_ID: Final = (TOPIC_DENIED, UNKNOWN_TOPIC_ID)
"""Errors of a request that names a topic by its id."""
TIMEOUT_MS: Final = 1_000
MISSING: Final = "bob-missing"
"""A name that no resource has."""


@dataclass(frozen=True, slots=True)
class Target:
    """Names and ids of other tenants, at which one request aims."""

    topic: str
    topic_id: UUID
    group: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    broker: int
    seed: int

    def missing(self) -> "Target":
        """Return the same target with names that do not exist."""
        return replace(self, topic=MISSING, group=MISSING, transactional_id=MISSING)


Build = Callable[[Target], "Message"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One kind of request: its builder, its versions, and the errors of which it must have one."""

    build: Build
    versions: tuple[int, ...]
    errors: tuple[int, ...] | None
    """None: the response only must not contain anything of others."""
    compared: bool = True
    """True if the response must be the same for a name that does not exist."""
