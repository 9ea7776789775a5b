"""AlterClientQuotas: change the quotas of users, client ids, pairs of both, and addresses (KIP-546).

Behavior:
* A null name stands for the default quota of its entity type. Addresses are IP addresses, not host names.
* Each entity has its own result. The controller changes the entities that it accepts.
* Each broker applies a quota when the record reaches its metadata image.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request; other errors per entity.

Version notes:
* v1 is flexible.
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing, split_by
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

COMPONENTS_MAX: Final = 10
"""Maximum components of an entity. Kafka has three types of components."""
OPERATIONS_MAX: Final = 100
"""Maximum operations per entity. Kafka has seven quotas."""


async def handle(context: QuorumRequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    if not context.allowed_on_cluster(AclOperation.ALTER_CONFIGS, about=map(_text, request.entries)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if any(len(entry.entity) > COMPONENTS_MAX or len(entry.ops) > OPERATIONS_MAX for entry in request.entries):
        message = f"an entry has at most {COMPONENTS_MAX} components and {OPERATIONS_MAX} operations"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    results = await context.quorum.controller.alter_client_quotas(
        [_change(entry) for entry in request.entries], validate_only=request.validate_only
    )
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                result.error, result.message, [ResponseEntityData(kind, name) for kind, name in result.entity]
            )
            for result in results
        ]
    )


def _change(entry: RequestEntryData) -> QuotaChange:
    return QuotaChange(
        tuple((component.entity_type, component.entity_name) for component in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _text(entry: RequestEntryData) -> str:
    """Return the text of an entity in the audit log."""
    return ", ".join(f"{component.entity_type}={component.entity_name}" for component in entry.entity[:COMPONENTS_MAX])


def refuse(
    context: QuorumRequestContext, request: AlterClientQuotasRequest, error: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error,
                message,
                [
                    ResponseEntityData(component.entity_type, component.entity_name)
                    for component in entry.entity[:COMPONENTS_MAX]
                ],
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
    splitting=split_by(("entries",), ("entries",)),
    elements=lambda request: len(request.entries),
    acl="ALTER_CONFIGS on the cluster",
)
