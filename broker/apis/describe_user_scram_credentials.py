"""DescribeUserScramCredentials: list the SCRAM credentials of users (KIP-554). This broker has none.

Behavior:
* A request for all users has an empty response. The API is served because Kafka's `kafka-configs` tool sends it when it
  describes the quotas of users.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request. Per user: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request
  names the user more than once.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

PARTS: Final = Splitting(("users",), ("results",))


def handle(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse | Ordered[DescribeUserScramCredentialsResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if PARTS.is_large(request):
        return Ordered(_respond_in_parts(context, request))
    return _response(list(Counter(_names(request)).items()))


async def _respond_in_parts(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    counts: Counter[str] = Counter()

    def names_of(part: DescribeUserScramCredentialsRequest) -> list[str]:
        names = _names(part)
        counts.update(names)
        return names

    names = await distinct(context, PARTS, request, names_of)
    return await respond_in_parts(
        context,
        PARTS,
        DescribeUserScramCredentialsResponse,
        names,
        lambda some: _response([(name, counts[name]) for name in some]),
    )


def _names(request: DescribeUserScramCredentialsRequest) -> list[str]:
    return [user.name for user in request.users or ()]


def _response(counts: Sequence[tuple[str, int]]) -> DescribeUserScramCredentialsResponse:
    """Return the response for users and the number of times that the request names each."""
    results = []
    for name, count in counts:
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
