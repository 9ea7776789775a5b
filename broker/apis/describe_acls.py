"""DescribeAcls: list the access control lists that match a filter (KIP-140, KIP-290).

Behavior:
* The ACLs are those of the broker's metadata image, grouped by resource pattern. A pattern with many ACLs can have
  several entries.
* With a tagged field of Odradek, the broker explains its decision about an operation of a principal, instead of listing
  ACLs (`EXPLAINED_TAG`).
* The pattern type MATCH finds each pattern that applies to the resource name of the filter.

Errors:
* CLUSTER_AUTHORIZATION_FAILED; SECURITY_DISABLED without `authorizer.class.name`, which MirrorMaker reads as "no ACLs".
  INVALID_REQUEST for a filter with an unknown code.

Version notes:
* v2 is flexible. v3 has the resource type USER (KIP-373).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.slices import collect, completed, visit_slices
from odradek.broker.security.acl_filters import ACLS_PER_SLICE, filter_of
from odradek.cluster.authorizer import AclOperation, Principal
from odradek.protocol.acls import Acl, PatternType, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import EXPLAINED_TAG
from odradek.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

MATCH_BYTES: Final = 300
"""Maximum bytes per ACL that matches: a list and an entry of a dictionary by pattern. The ACL is in the image."""

Found = dict[tuple[ResourceType, str, PatternType], list[Acl]]
"""ACLs by the pattern of their resources."""


def handle(
    context: QuorumRequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse | Ordered[DescribeAclsResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.authorizer.enabled:
        raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    if any(tag == EXPLAINED_TAG for tag, _ in request.unknown_tagged_fields):
        return _explanation(context, request)
    matches = filter_of(request).matches
    acls = context.node.metadata.image.acls
    if len(acls) > ACLS_PER_SLICE:
        return Ordered(_in_slices(context, matches, list(acls.values())))
    found: Found = {}
    _add(found, filter(matches, acls.values()))
    return _response([resource for resource, _ in _resources(found)])


def _explanation(context: QuorumRequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the decision about the operation that the filter names, with the deciding ACL."""
    wanted = filter_of(request)
    kind, colon, name = (wanted.principal or "").partition(":")
    if (
        not colon
        or wanted.name is None
        or wanted.resource is ResourceType.ANY
        or wanted.operation in {AclOperation.ANY, AclOperation.ALL}
    ):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Name a principal, one operation and one resource.")
    decision = context.authorizer.decide(
        Principal(kind, name), wanted.host or "", wanted.operation, wanted.resource, wanted.name
    )
    found: Found = {}
    _add(found, () if decision.acl is None else (decision.acl,))
    response = _response([resource for resource, _ in _resources(found)])
    response.unknown_tagged_fields = ((EXPLAINED_TAG, bytes([decision.allowed]) + str(decision).encode()),)
    return response


async def _in_slices(
    context: QuorumRequestContext, matches: Callable[[Acl], bool], acls: Sequence[Acl]
) -> DescribeAclsResponse:
    found: Found = {}

    def visit(start: int) -> None:
        some = list(filter(matches, acls[start : start + ACLS_PER_SLICE]))
        context.reserve(MATCH_BYTES * len(some))
        _add(found, some)

    await visit_slices(context, range(0, len(acls), ACLS_PER_SLICE), visit)
    total = sum(map(len, found.values()))
    return await completed(collect(context, DescribeAclsResponse, _resources(found), total, _response))


def _add(found: Found, acls: Iterable[Acl]) -> None:
    for acl in acls:
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)


def _resources(found: Found) -> Iterator[tuple[DescribeAclsResource, Sequence[Acl]]]:
    """Yield the entry of each pattern, with its ACLs. One entry has at most ACLS_PER_SLICE of them."""
    for (resource, name, pattern), acls in found.items():
        for start in range(0, len(acls), ACLS_PER_SLICE):
            some = acls[start : start + ACLS_PER_SLICE]
            described = [AclDescription(acl.principal, acl.host, acl.operation, acl.permission) for acl in some]
            yield DescribeAclsResource(resource, name, pattern, described), some


def _response(resources: list[DescribeAclsResource]) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_message=None, resources=resources)


def refuse(
    context: QuorumRequestContext, request: DescribeAclsRequest, error: ErrorCode, message: str | None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message)


API: Final = Api(
    key=29,
    min_version=1,
    max_version=3,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    acl="DESCRIBE on the cluster",
)
