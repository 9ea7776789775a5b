"""Decide which principal may do which operation on which resource."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol


class AclOperation(IntEnum):
    """Kafka's codes of operations (AclOperation), as the bits of the authorized-operations fields."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's codes of resource types."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_RESOURCE: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity that a session's requests are authorized as."""

    kind: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection that has not authenticated."""


class Authorizer(Protocol):
    """Authorize one operation of one principal on resources of one type."""

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """Return one decision for each of `names`, in their order. `host` is the client's address."""
        ...
