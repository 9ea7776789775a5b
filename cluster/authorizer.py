"""Port of the authorizer: which principal may do which operation on which resource, and the rule that decides it."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from odradek.frozen import frozen_dataclass
from odradek.protocol.acls import CLUSTER_RESOURCE, Acl, AclOperation, Permission, ResourceType

__all__ = [
    "ANONYMOUS",
    "CLUSTER_NODE",
    "CLUSTER_RESOURCE",
    "AclOperation",
    "Authorizer",
    "Decision",
    "Principal",
    "ResourceType",
    "Rule",
]


class Principal(NamedTuple):
    """The identity that a session's requests are authorized as."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the text of the principal in ACLs, configurations and log events."""
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection that has not authenticated."""
CLUSTER_NODE: Final = Principal("Node", "cluster")
"""The principal of a node that has authenticated with the cluster secret. It may do each operation.

The principals of clients have the kind User, so no client can have this principal.
"""


class Rule(Enum):
    """The kind of rule that decides. The value is the text in the audit log."""

    ACL = "ACL"
    SUPER_USER = "super user"
    NODE = "node of the cluster"
    NO_ACL = "allow.everyone.if.no.acl.found"
    DEFAULT = "no ACL allows it"
    NOT_LOADED = "the metadata is not loaded"
    NO_AUTHORIZER = "no authorizer"


@frozen_dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one operation on one resource, and the rule that decides it.

    `acl` is the deciding ACL if the rule is Rule.ACL.
    """

    allowed: bool
    rule: Rule
    acl: Acl | None = None

    @staticmethod
    def by_acl(acl: Acl) -> "Decision":
        """Return the decision of an ACL that matches."""
        return Decision(acl.permission is Permission.ALLOW, Rule.ACL, acl)

    def __str__(self) -> str:
        """Return the text of the deciding rule."""
        return self.rule.value if self.acl is None else f"ACL {self.acl}"


class Authorizer(Protocol):
    """Authorize operations of principals on resources."""

    @property
    def enabled(self) -> bool:
        """True if ACLs decide. False: `authorizer.class.name` is not set."""
        ...

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """Return one decision for each of `names`, in their order. `host` is the client's address."""
        ...

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> Decision:
        """Return the decision on the resource `name`, with the deciding rule."""
        ...

    def decide_any(self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType) -> Decision:
        """Decide whether the principal may do `operation` on at least one resource of the type."""
        ...
