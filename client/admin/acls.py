"""ACLs: list, create and delete them, and find the rule that decides about an operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.errors import ProtocolError, check
from odradek.protocol.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.extensions import EXPLAINED_TAG
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.messages.delete_acls import DeleteAclsMatchingAcl
    from odradek.protocol.messages.describe_acls import DescribeAclsResponse

__all__ = [
    "Acl",
    "AclExplanation",
    "AclFilter",
    "AclOperation",
    "PatternType",
    "Permission",
    "ResourceType",
    "create_acls",
    "delete_acls",
    "describe_acls",
    "explain_acl",
]


@dataclass(frozen=True, slots=True)
class AclExplanation:
    """The decision of a broker about one operation. `acl` is None if another rule decides, such as a super user."""

    allowed: bool
    rule: str
    acl: Acl | None


async def describe_acls(cluster: Cluster, matching: AclFilter | None = None) -> list[Acl]:
    """Return the ACLs that a filter matches, sorted by their fields. Raise Refused if the broker does not list them."""
    wanted = matching or AclFilter()
    request = DescribeAclsRequest(
        wanted.resource,
        wanted.name,
        wanted.pattern,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission,
    )
    response = await cluster.request_any(request)
    check(response.error_code, "the ACLs were not listed", response.error_message)
    return sorted(_described(response))


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs. One that exists already is no error. Raise Refused for the first one that is invalid."""
    creations = [
        AclCreation(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)
        for acl in acls
    ]
    response = await cluster.request_any(CreateAclsRequest(creations))
    for acl, result in zip(acls, response.results, strict=True):
        check(result.error_code, f"ACL {acl}", result.error_message)


async def delete_acls(cluster: Cluster, matching: AclFilter) -> list[Acl]:
    """Delete the ACLs that a filter matches, if any. Return them, sorted by their fields. Raise Refused."""
    wanted = DeleteAclsFilter(
        matching.resource,
        matching.name,
        matching.pattern,
        matching.principal,
        matching.host,
        matching.operation,
        matching.permission,
    )
    result = (await cluster.request_any(DeleteAclsRequest([wanted]))).filter_results[0]
    check(result.error_code, "no ACL was deleted", result.error_message)
    for each in result.matching_acls:
        check(each.error_code, f"ACL {_deleted(each)} was not deleted", each.error_message)
    return sorted(map(_deleted, result.matching_acls))


async def explain_acl(
    cluster: Cluster, principal: str, operation: AclOperation, resource: ResourceType, name: str, *, host: str = ""
) -> AclExplanation:
    """Return how a broker decides about an operation of a principal, such as `User:alice`, on a resource.

    Without the address of a `host`, only ACLs for all hosts count. Raise ProtocolError if the broker has no such
    function.
    """
    request = DescribeAclsRequest(
        resource,
        name,
        PatternType.LITERAL,
        principal,
        host,
        operation,
        Permission.ANY,
        unknown_tagged_fields=((EXPLAINED_TAG, b""),),
    )
    response = await cluster.request_any(request)
    check(response.error_code, "the decision was not explained", response.error_message)
    content = dict(response.unknown_tagged_fields).get(EXPLAINED_TAG)
    if not content:
        raise ProtocolError("the broker does not explain decisions", "only brokers of Odradek with ACLs do")
    acls = _described(response)
    return AclExplanation(content[:1] == b"\x01", content[1:].decode(errors="replace"), acls[0] if acls else None)


def _described(response: DescribeAclsResponse) -> list[Acl]:
    return [
        Acl(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _deleted(acl: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType(acl.resource_type),
        acl.resource_name,
        PatternType(acl.pattern_type),
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        Permission(acl.permission_type),
    )
