"""What handlers ask of a broker's security and quota code: principals, the authorizer and the throttle hook.

The implementations that allow everything and throttle nothing stand here too; real ones replace them in `node.py` and
change no handler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol


class AclOperation(IntEnum):
    """Kafka's operation codes (AclOperation), as they stand in authorized-operations bit fields."""

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
    """Kafka's resource type codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_RESOURCE: Final = "kafka-cluster"
"""The one name a CLUSTER resource has."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a session speaks for."""

    kind: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Authorizer(Protocol):
    """Decides, for one principal on one host, over many names at once."""

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """One answer per name, in order."""
        ...


class AllowAll:
    """The authorizer of a cluster without ACLs."""

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [True] * len(names)


class Quotas(Protocol):
    """Every response passes here: how long the client is asked to stay silent, in milliseconds."""

    def throttle_ms(self, principal: Principal, client_id: str | None, api_key: int, request_bytes: int) -> int: ...


class Unlimited:
    """Quotas of a cluster without quotas."""

    def throttle_ms(self, principal: Principal, client_id: str | None, api_key: int, request_bytes: int) -> int:
        return 0
