"""DescribeAcls: list access control lists (KIP-140, KIP-290). This broker has no authorizer and refuses it.

Behavior:
* The error is SECURITY_DISABLED, as in Apache Kafka without `authorizer.class.name`. The API is served because
  MirrorMaker reads this error as "no ACLs", but fails if the API is missing.

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
from odradek.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(context: BrokerRequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def refuse(
    context: BrokerRequestContext, request: DescribeAclsRequest, error: ErrorCode, message: str | None
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
    acl="DESCRIBE on the cluster",
)
