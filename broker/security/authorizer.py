"""What handlers ask of a broker's security and quota code: principals, the authorizer and the throttle hook.

The implementations that allow everything and throttle nothing stand here too; real ones replace them in `node.py` and
change no handler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from odradek.broker.dispatch.api import RequestContext


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


FETCH_BYTES_MAX: Final = 2**31 - 1
"""What a request can ask for."""
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


class Mutations(Protocol):
    """One request to create or delete partitions, before the quota of whoever sends it (KIP-599)."""

    @property
    def throttle_ms(self) -> int:
        """How long the client is asked to stay silent, by what has been spent so far."""

    def spend(self, partitions: int) -> None:
        """So many partitions are made or deleted. Raises Refusal(THROTTLING_QUOTA_EXCEEDED): then they must not be."""


class Quotas(Protocol):
    """What is asked for each request: who has used how much, and how long they are to be silent for it."""

    @property
    def measure_time(self) -> bool:
        """Does anybody's time count? Then `RequestContext.busy_us` is kept."""

    def throttle_ms(self, context: "RequestContext", response: Any) -> int:
        """Count the request and its response (None where there is none); how long its client is asked to stay silent."""

    def fetch_bytes_max(self, context: "RequestContext") -> int:
        """The most that a fetch may bring a consumer at a time."""

    def mutations(self, context: "RequestContext", *, strict: bool) -> Mutations:
        """`strict`: a client that has spent too much is refused; older ones are asked to stay silent afterwards."""

    def connection_rate(self, address: str) -> float | None:
        """New connections a second that may come from there; None for any number."""


class Unlimited:
    """Quotas of a cluster without quotas, and of each request in it."""

    measure_time = False

    def throttle_ms(self, context: "RequestContext", response: Any) -> int:
        return 0

    def fetch_bytes_max(self, context: "RequestContext") -> int:
        return FETCH_BYTES_MAX

    def mutations(self, context: "RequestContext", *, strict: bool) -> Mutations:
        return FREE

    def connection_rate(self, address: str) -> float | None:
        return None


class Free:
    """`Mutations` of a client without a quota."""

    throttle_ms = 0

    def spend(self, partitions: int) -> None:
        """It may make and delete what it likes."""


FREE: Final = Free()
