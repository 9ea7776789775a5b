"""Client quotas of users, client ids and addresses: list, set, remove."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.errors import check
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from odradek.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.client.network.cluster import Cluster

ENTITY_TYPES: Final = ("user", "client-id", "ip")
EXACT, DEFAULT = 0, 1
"""Match types of DescribeClientQuotas: an entity of this name, or the default entity."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Quotas of an entity. `entity` has names by type; None is the default of all names of that type."""

    entity: dict[str, str | None]
    values: dict[str, float]


async def describe_quotas(cluster: Cluster, entity: Mapping[str, str | None] | None = None) -> list[Quota]:
    """Return the quotas of the entities that have these names, or of all entities. Raise Refused."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in (entity or {}).items()
    ]
    response = await cluster.request_any(DescribeClientQuotasRequest(components=components, strict=False))
    check(response.error_code, "the quotas were not listed", response.error_message)
    quotas = [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in response.entries or []
    ]
    return sorted(quotas, key=lambda quota: [(kind, name or "") for kind, name in sorted(quota.entity.items())])


async def alter_quotas(
    cluster: Cluster,
    entity: Mapping[str, str | None],
    values: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set quotas of an entity, by Kafka's names. None removes a quota. Raise Refused."""
    entry = RequestEntryData(
        entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    response = await cluster.request_any(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only))
    result = response.entries[0]
    check(result.error_code, "the quotas were not changed", result.error_message)
