"""DescribeUserScramCredentials: list the mechanisms and iterations of the SCRAM credentials of users (KIP-554).

Behavior:
* A request without users is for all users that have a credential. The response has no salt and no key.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request. Per user: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request
  names the user more than once.
"""

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.metadata.image import ScramKey
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.protocol.sasl.scram import SCRAM_BY_CODE, Credential

Credentials = Mapping[ScramKey, Credential]
PARTS: Final = Splitting(("users",), ("results",))


def handle(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse | Ordered[DescribeUserScramCredentialsResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    scram = context.node.metadata.image.scram
    if PARTS.is_large(request):
        return Ordered(_respond_in_parts(context, request, scram))
    if request.users:
        return _response(list(Counter(_names(request)).items()), scram)
    users = list(dict.fromkeys(user for user, _ in scram))
    if len(users) <= ELEMENTS_PER_PART:
        return _response([(user, 1) for user in users], scram)
    return Ordered(_respond_with(context, users, dict.fromkeys(users, 1), scram))


async def _respond_in_parts(
    context: BrokerRequestContext, request: DescribeUserScramCredentialsRequest, scram: Credentials
) -> DescribeUserScramCredentialsResponse:
    counts: Counter[str] = Counter()

    def names_of(part: DescribeUserScramCredentialsRequest) -> list[str]:
        names = _names(part)
        counts.update(names)
        return names

    names = await distinct(context, PARTS, request, names_of)
    return await _respond_with(context, names, counts, scram)


def _respond_with(
    context: BrokerRequestContext, users: Sequence[str], counts: Mapping[str, int], scram: Credentials
) -> Awaitable[DescribeUserScramCredentialsResponse]:
    return respond_in_parts(
        context,
        PARTS,
        DescribeUserScramCredentialsResponse,
        users,
        lambda some: _response([(user, counts[user]) for user in some], scram),
    )


def _names(request: DescribeUserScramCredentialsRequest) -> list[str]:
    return [user.name for user in request.users or ()]


def _response(counts: Sequence[tuple[str, int]], scram: Credentials) -> DescribeUserScramCredentialsResponse:
    """Return the response for users and the number of times that the request names each."""
    results = []
    for name, count in counts:
        held = ((code, scram.get((name, code))) for code in SCRAM_BY_CODE)
        infos = [CredentialInfo(code, credential.iterations) for code, credential in held if credential is not None]
        if infos and count == 1:
            results.append(DescribeUserScramCredentialsResult(name, credential_infos=infos, error_message=None))
            continue
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
