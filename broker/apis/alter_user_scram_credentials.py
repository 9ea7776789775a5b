"""AlterUserScramCredentials: set and remove the SCRAM credentials of users (KIP-554).

Behavior:
* The client derives the salted password from the password, and sends it. The controller derives the keys from it, and
  writes them to the metadata log. No node learns the password.
* Each user has its own result. The controller changes the users that it accepts.
* Each broker uses a credential when the record reaches its metadata image. Sessions that exist continue.

Errors:
* CLUSTER_AUTHORIZATION_FAILED; POLICY_VIOLATION for more than 10,000 changes.
* Per user: UNACCEPTABLE_CREDENTIAL without a name, if the iterations are not from 4,096 to 16,384, or if the salt has
  more than 1,024 bytes. UNSUPPORTED_SASL_MECHANISM for another mechanism. RESOURCE_NOT_FOUND if the credential to
  remove does not exist. DUPLICATE_RESOURCE if the request names the user more than once.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import NewScramCredential, ScramChange
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)


async def handle(
    context: QuorumRequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    names = [*(deletion.name for deletion in request.deletions), *(upsertion.name for upsertion in request.upsertions)]
    if not context.allowed_on_cluster(AclOperation.ALTER, about=(f"user {name}" for name in names)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    removed = [ScramChange(deletion.name, deletion.mechanism) for deletion in request.deletions]
    results = await context.quorum.controller.alter_scram_credentials(
        [*removed, *(_change(upsertion) for upsertion in request.upsertions)]
    )
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(result.user, result.error, result.message) for result in results]
    )


def _change(upsertion: ScramCredentialUpsertion) -> ScramChange:
    new = NewScramCredential(upsertion.iterations, bytes(upsertion.salt), bytes(upsertion.salted_password))
    return ScramChange(upsertion.name, upsertion.mechanism, new)


def refuse(
    context: QuorumRequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(deletion.name for deletion in request.deletions)
    users |= dict.fromkeys(upsertion.name for upsertion in request.upsertions)
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user, error, message) for user in users]
    )


API: Final = Api(
    key=51,
    min_version=0,
    max_version=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    elements=lambda request: len(request.deletions) + len(request.upsertions),
    acl="ALTER on the cluster",
)
