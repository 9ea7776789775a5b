"""DescribeClientQuotas: v0-v1 (KIP-546)

Behavior:
* The quotas that are set for entities that fit a filter: for each kind a name, everybody (the default), or whoever has one.
  `strict` leaves out entities that are also of kinds which the filter does not name.

Version notes: the body is the same in both; v1 is flexible.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.settings.client_quotas import CLIENT_ID, IP, USER
from odradek.cluster.metadata.image import QuotaEntity
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
MATCHES: Final = {EXACT: "EXACT", DEFAULT: "DEFAULT", SPECIFIED: "SPECIFIED"}


def handle(context: BrokerRequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    _check(request.components)
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity], [ValueData(key, value) for key, value in values.items()]
        )
        for entity, values in context.node.metadata.image.client_quotas.items()
        if _fits(entity, request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check(components: Sequence[ComponentData]) -> None:
    seen: dict[str, None] = {}
    for each in components:
        if not each.entity_type:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if each.entity_type in seen:
            message = f"Entity type {each.entity_type} cannot appear more than once in the filter."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if each.entity_type not in {USER, CLIENT_ID, IP}:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        if each.match_type not in MATCHES:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if each.match_type == EXACT and each.match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if each.match_type != EXACT and each.match is not None:
            kind = MATCHES[each.match_type]
            message = f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        seen[each.entity_type] = None
    if IP in seen and len(seen) > 1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        )


def _fits(entity: QuotaEntity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    named = dict(entity)
    if strict and len(named) != len(components):
        return False
    return all(
        each.entity_type in named and (each.match_type == SPECIFIED or named[each.entity_type] == each.match)
        for each in components
    )


def refuse(
    context: BrokerRequestContext, request: DescribeClientQuotasRequest, error: ErrorCode, message: str | None
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)


API: Final = Api(
    key=48,
    min_version=0,
    max_version=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE_CONFIGS on the cluster",
)
