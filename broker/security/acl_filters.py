"""Filters of ACLs in requests, and the look-up of the ACLs that they match."""

from typing import Final, Protocol

from odradek.protocol.acls import AclFilter, AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal

ACLS_PER_SLICE: Final = 1_000
"""ACLs that one turn of the event loop compares with a filter. It takes about 0.5 ms."""


class RequestedFilter(Protocol):
    """Filter in a DescribeAcls or DeleteAcls request."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(requested: RequestedFilter) -> AclFilter:
    """Return the filter. Raise Refusal(INVALID_REQUEST) with Apache Kafka's text if it has an unknown code."""
    try:
        resource, pattern = ResourceType(requested.resource_type_filter), PatternType(requested.pattern_type_filter)
    except ValueError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.") from error
    try:
        operation, permission = AclOperation(requested.operation), Permission(requested.permission_type)
    except ValueError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.") from error
    return AclFilter(
        resource,
        requested.resource_name_filter,
        pattern,
        requested.principal_filter,
        requested.host_filter,
        operation,
        permission,
    )
