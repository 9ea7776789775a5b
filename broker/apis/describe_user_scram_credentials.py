"""DescribeUserScramCredentials: list the SCRAM credentials of users (KIP-554). This broker has none.

Behavior:
* A request for all users has an empty response. The API is served because Kafka's `kafka-configs` tool sends it when it
  describes the quotas of users.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request. Per user: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request
  names the user more than once.
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
    for name, count in Counter(user.name for user in request.users or ()).items():
        error = ErrorCode.DUPLICATE_RESOURCE if count > 1 else ErrorCode.RESOURCE_NOT_FOUND
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            if count > 1
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
