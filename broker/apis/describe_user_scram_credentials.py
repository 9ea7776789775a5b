"""DescribeUserScramCredentials: v0 (KIP-554)

Behavior:
* There are no credentials here, since clients are not authenticated: a list of everybody's is empty, and who is named has none
  (RESOURCE_NOT_FOUND). Kafka's tools ask for them when they describe the quotas of users.
"""

from collections import Counter
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    for name, times in Counter(user.name for user in request.users or ()).items():
        error = ErrorCode.DUPLICATE_RESOURCE if times > 1 else ErrorCode.RESOURCE_NOT_FOUND
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            if times > 1
            else f"Attempt to describe a user credential that does not exist: {name}"
        )
        results.append(DescribeUserScramCredentialsResult(name, error, message))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def refuse(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest, error: ErrorCode, message: str | None
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=message)


API: Final = Api(
    key=50,
    min_version=0,
    max_version=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on the cluster",
)
