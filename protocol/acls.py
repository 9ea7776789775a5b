"""Access control lists (ACLs) as values: their codes in Kafka's messages and records, and the filters of ACLs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Resource name or host of an ACL that matches each name or each host."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""Principal of an ACL that matches each principal."""
CLUSTER_RESOURCE: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class AclOperation(IntEnum):
    """Kafka's codes of operations (AclOperation). They are also the bits of the authorized-operations fields."""

    ANY = 1
    """Each operation, in a filter."""
    ALL = 2
    """Each operation, in an ACL."""
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's codes of resource types."""

    ANY = 1
    """Each resource type, in a filter."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's codes of pattern types (KIP-290)."""

    ANY = 1
    """Each pattern type, in a filter."""
    MATCH = 2
    """Each pattern that matches the resource name of the filter."""
    LITERAL = 3
    """The resource with this name, or each resource if the name is `*`."""
    PREFIXED = 4
    """The resources whose names begin with this prefix."""


class Permission(IntEnum):
    """Kafka's codes of permission types (AclPermissionType)."""

    ANY = 1
    """Each permission, in a filter."""
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL: a pattern of resources, and the operation that it allows or denies to a principal from a host.

    `host` is an address, a network in CIDR notation, or WILDCARD.
    """

    resource: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        """Return the text of the ACL in log events and in the output of tools."""
        return (
            f"{self.permission.name} {self.operation.name} on {self.resource.name} {self.pattern.name} {self.name}"
            f" to {self.principal} from {self.host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Filter of ACLs. None and the ANY codes match each value."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return True if the filter matches `acl`, as AclBindingFilter of Apache Kafka does."""
        return (
            (self.resource is ResourceType.ANY or acl.resource is self.resource)
            and (self.principal is None or acl.principal == self.principal)
            and (self.host is None or acl.host == self.host)
            and (self.operation is AclOperation.ANY or acl.operation is self.operation)
            and (self.permission is Permission.ANY or acl.permission is self.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern is not PatternType.MATCH:
            return (self.pattern is PatternType.ANY or acl.pattern is self.pattern) and (
                self.name is None or acl.name == self.name
            )
        if self.name is None:
            return True
        if acl.pattern is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in {self.name, WILDCARD}

    def exact(self) -> Acl | None:
        """Return the only ACL that the filter can match; None if it can match several ACLs."""
        if (
            self.resource is ResourceType.ANY
            or self.name is None
            or self.pattern in {PatternType.ANY, PatternType.MATCH}
            or self.principal is None
            or self.host is None
            or self.operation is AclOperation.ANY
            or self.permission is Permission.ANY
        ):
            return None
        return Acl(self.resource, self.name, self.pattern, self.principal, self.host, self.operation, self.permission)
