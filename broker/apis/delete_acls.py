"""DeleteAcls: delete the access control lists that match filters (KIP-140, KIP-290).

Behavior:
* The controller finds the ACLs in its metadata image, and then writes one record per ACL. Each filter has its own
  result, with the ACLs that match it.
* A filter that names one ACL completely is looked up. Any other filter is compared with all ACLs, in slices.

Errors:
* CLUSTER_AUTHORIZATION_FAILED; SECURITY_DISABLED without `authorizer.class.name`. INVALID_REQUEST for more than 10,000
  matching ACLs, and per filter with an unknown code.

Version notes:
* v2 is flexible. v3 has the resource type USER (KIP-373).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Ordered, Routing, split_by
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.slices import collect, completed, visit_slices
from odradek.broker.security.acl_filters import ACLS_PER_SLICE, filter_of
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.slices import RECORDS_PER_REQUEST_MAX
from odradek.protocol.acls import Acl, AclFilter
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

MATCH_BYTES: Final = 500
"""Maximum bytes per ACL that matches: its result, and its id in a dictionary. The strings are in the image."""


def handle(context: QuorumRequestContext, request: DeleteAclsRequest) -> Ordered[DeleteAclsResponse]:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=map(_text, request.filters)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.authorizer.enabled:
        raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return Ordered(_delete(context, request))


async def _delete(context: QuorumRequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    ids: dict[UUID, None] = {}
    results = [await _matching(context, requested, ids) for requested in request.filters]
    if ids:
        await context.quorum.controller.remove_acls(list(ids))
    sized = ((result, result.matching_acls) for result in results)
    total = sum(len(result.matching_acls) for result in results)
    return await completed(collect(context, DeleteAclsResponse, sized, total, _response))


async def _matching(
    context: QuorumRequestContext, requested: DeleteAclsFilter, ids: dict[UUID, None]
) -> DeleteAclsFilterResult:
    """Return the result of a filter. Add the ids of the ACLs that match it to `ids`."""
    try:
        wanted = filter_of(requested)
    except Refusal as refusal:
        return DeleteAclsFilterResult(refusal.error, refusal.message)
    matching: list[DeleteAclsMatchingAcl] = []

    def visit(some: Iterable[tuple[UUID, Acl]]) -> None:
        before = len(matching)
        for acl_id, acl in some:
            if wanted.matches(acl):
                ids[acl_id] = None
                matching.append(_described(acl))
        context.reserve(MATCH_BYTES * (len(matching) - before))
        if len(ids) > RECORDS_PER_REQUEST_MAX:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation.",
            )

    await visit_slices(context, _candidates(context, wanted), visit)
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def _candidates(context: QuorumRequestContext, wanted: AclFilter) -> Iterator[list[tuple[UUID, Acl]]]:
    """Yield the ACLs that can match, in slices."""
    exact = wanted.exact()
    if exact is not None:
        acl_id = context.quorum.controller.acl_id(exact)
        yield [] if acl_id is None else [(acl_id, exact)]
        return
    remaining = iter(context.node.metadata.image.acls.items())
    while some := list(islice(remaining, ACLS_PER_SLICE)):
        yield some


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _response(results: list[DeleteAclsFilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=results)


def _text(requested: DeleteAclsFilter) -> str:
    """Return the text of a filter in the audit log."""
    return (
        f"permission {requested.permission_type} operation {requested.operation}"
        f" resource {requested.resource_type_filter} {requested.resource_name_filter}"
        f" pattern {requested.pattern_type_filter} {requested.principal_filter} {requested.host_filter}"
    )


def refuse(
    context: QuorumRequestContext, request: DeleteAclsRequest, error: ErrorCode, message: str | None
) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error, message) for _ in request.filters])


API: Final = Api(
    key=31,
    min_version=1,
    max_version=3,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    splitting=split_by(("filters",), ("filter_results",)),
    elements=lambda request: len(request.filters),
    acl="ALTER on the cluster",
)
