"""CreateAcls: create access control lists (KIP-140, KIP-290). This broker has no authorizer and refuses it.

Behavior:
* Each creation has the result SECURITY_DISABLED, as in Apache Kafka without `authorizer.class.name`.

Errors:
* CLUSTER_AUTHORIZATION_FAILED, or SECURITY_DISABLED.

Version notes:
* v2 is flexible. v3 has the resource type USER (KIP-373).
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(context: BrokerRequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refuse(
    context: BrokerRequestContext, request: CreateAclsRequest, error: ErrorCode, message: str | None
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
    acl="ALTER on the cluster",
)
