"""DeleteAcls: delete access control lists (KIP-140, KIP-290). This broker has no authorizer and refuses it.

Behavior:
* Each filter has the result SECURITY_DISABLED, as in Apache Kafka without `authorizer.class.name`.

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
from odradek.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(context: BrokerRequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refuse(
    context: BrokerRequestContext, request: DeleteAclsRequest, error: ErrorCode, message: str | None
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
    acl="ALTER on the cluster",
)
