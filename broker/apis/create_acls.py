"""CreateAcls: create access control lists (KIP-140, KIP-290).

Behavior:
* The controller writes one record per new ACL. An ACL that exists already is created without an effect.
* Each creation has its own result. Invalid ones do not affect the valid ones.
* Each broker applies an ACL when the record reaches its metadata image.

Errors:
* CLUSTER_AUTHORIZATION_FAILED; SECURITY_DISABLED without `authorizer.class.name`. POLICY_VIOLATION for more than 10,000
  ACLs. INVALID_REQUEST per ACL; UNSUPPORTED_VERSION for a network as the host if the metadata.version is below 4.4-IV1.

Version notes:
* v2 is flexible. v3 has the resource type USER (KIP-373).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing, split_by
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import NewAcl
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(context: QuorumRequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER, about=map(_text, request.creations)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.authorizer.enabled:
        raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    results = await context.quorum.controller.create_acls([_new(creation) for creation in request.creations])
    return CreateAclsResponse(results=[AclCreationResult(result.error, result.message) for result in results])


def _new(creation: AclCreation) -> NewAcl:
    return NewAcl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _text(creation: AclCreation) -> str:
    """Return the text of a requested ACL in the audit log."""
    return (
        f"permission {creation.permission_type} operation {creation.operation} resource {creation.resource_type}"
        f" {creation.resource_name} pattern {creation.resource_pattern_type} {creation.principal} {creation.host}"
    )


def refuse(
    context: QuorumRequestContext, request: CreateAclsRequest, error: ErrorCode, message: str | None
) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error, message) for _ in request.creations])


API: Final = Api(
    key=30,
    min_version=1,
    max_version=3,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    splitting=split_by(("creations",), ("results",)),
    elements=lambda request: len(request.creations),
    acl="ALTER on the cluster",
)
