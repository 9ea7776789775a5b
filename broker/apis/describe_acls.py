"""DescribeAcls: v1-v3 (KIP-140, KIP-290)

Behavior:
* There are no access control lists here, and nobody to obey them: SECURITY_DISABLED, as Apache Kafka answers
  without an `authorizer.class.name`. It is served because tools ask: MirrorMaker takes that answer for "none", and not its lack.

Version notes: v2 flexible · v3 the resource type of users (KIP-373); the answer is the same.
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
