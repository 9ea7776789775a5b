"""DescribeClientQuotas: list the configured quotas that match a filter (KIP-546).

Behavior:
* For each entity type, the filter names one entity, the default (a null name), or any entity with a quota.
* Without `strict`, an entity can have types that the filter does not name. With `strict` it cannot.

Errors:
* CLUSTER_AUTHORIZATION_FAILED. INVALID_REQUEST for an invalid filter. UNSUPPORTED_VERSION for an unknown entity type.

Version notes:
* v1 is flexible.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import respond_in_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
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
MATCH_TYPES: Final = {EXACT: "EXACT", DEFAULT: "DEFAULT", SPECIFIED: "SPECIFIED"}


PARTS: Final = Splitting((), ("entries",))


def handle(
    context: BrokerRequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse | Ordered[DescribeClientQuotasResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    _check(request.components)
    quotas = context.node.metadata.image.client_quotas

    def response(entities: Sequence[QuotaEntity]) -> DescribeClientQuotasResponse:
        entries = [
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in quotas[entity].items()],
            )
            for entity in entities
            if _matches(entity, request.components, strict=request.strict)
        ]
        return DescribeClientQuotasResponse(error_message=None, entries=entries)

    entities = list(quotas)
    if len(entities) <= ELEMENTS_PER_PART:
        return response(entities)
    return Ordered(respond_in_parts(context, PARTS, DescribeClientQuotasResponse, entities, response))


def _check(components: Sequence[ComponentData]) -> None:
    seen: dict[str, None] = {}
    for component in components:
        if not component.entity_type:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if component.entity_type in seen:
            message = f"Entity type {component.entity_type} cannot appear more than once in the filter."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if component.entity_type not in {USER, CLIENT_ID, IP}:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
        if component.match_type not in MATCH_TYPES:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if component.match_type != EXACT and component.match is not None:
            kind = MATCH_TYPES[component.match_type]
            message = f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        seen[component.entity_type] = None
    if IP in seen and len(seen) > 1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        )


def _matches(entity: QuotaEntity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == SPECIFIED or names[component.entity_type] == component.match)
        for component in components
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
