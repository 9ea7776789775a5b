"""AlterClientQuotas: v0-v1 (KIP-546)

Behavior:
* Quotas of users, client ids, both together, or addresses; a name that is null stands for everybody who has none of their own.
  Addresses are written as numbers. An entity that is refused does not keep the others from being changed.
* Brokers obey a quota as soon as they hear of it (see `odradek.broker.quota.client_quotas`).

Version notes: the body is the same in both; v1 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import QuotaChange
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)


async def handle(context: QuorumRequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER_CONFIGS):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    done = await context.quorum.controller.alter_client_quotas(
        [_change(entry) for entry in request.entries], validate_only=request.validate_only
    )
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                result.error, result.message, [ResponseEntityData(kind, name) for kind, name in result.entity]
            )
            for result in done
        ]
    )


def _change(entry: RequestEntryData) -> QuotaChange:
    return QuotaChange(
        tuple((each.entity_type, each.entity_name) for each in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def refuse(
    context: QuorumRequestContext, request: AlterClientQuotasRequest, error: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error, message, [ResponseEntityData(each.entity_type, each.entity_name) for each in entry.entity]
            )
            for entry in request.entries
        ]
    )


API: Final = Api(
    key=49,
    min_version=0,
    max_version=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="ALTER_CONFIGS on the cluster",
)
